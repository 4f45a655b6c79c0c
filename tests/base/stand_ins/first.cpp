extern "C" int stand_in_second();
extern "C" int stand_in_first();
extern "C" int stand_in_first() { return stand_in_second() + 1; }
