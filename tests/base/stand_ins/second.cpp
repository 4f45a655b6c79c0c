extern "C" int stand_in_second();
extern "C" int stand_in_second() { return 41; }
