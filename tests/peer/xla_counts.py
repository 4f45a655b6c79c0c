"""Counts the collectives and loops of a serialized HloModuleProto, by the numbers of its fields in XLA's hlo.proto.

The messages are walked as they lie in the bytes: neither protobuf's library nor XLA's text is used.
"""


def fields(data):
    """(number, value) of each field of a message; a value is an integer or bytes."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7

    while at < len(data):
        key = varint()
        kind = key & 7
        if kind == 0:
            yield key >> 3, varint()
        elif kind == 2:
            size = varint()
            yield key >> 3, data[at:at + size]
            at += size
        else:
            size = {1: 8, 5: 4}[kind]
            yield key >> 3, data[at:at + size]
            at += size


def integers(values):
    """A repeated integer, packed or not."""
    out = []
    for value in values:
        if isinstance(value, int):
            out.append(value)
        else:
            at = 0
            while at < len(value):
                number = shift = 0
                while True:
                    byte = value[at]
                    at += 1
                    number |= (byte & 127) << shift
                    shift += 7
                    if byte < 128:
                        break
                out.append(number)
    return out


def message(data):
    out = {}
    for number, value in fields(data):
        out.setdefault(number, []).append(value)
    return out


# PrimitiveType of xla_data.proto: bytes of an element.
BYTES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 2, 8: 4, 9: 8, 10: 2, 11: 4, 12: 8, 15: 8, 16: 2, 18: 16, 19: 1, 20: 1,
         23: 1, 24: 1, 25: 1}
KINDS = ("all-gather", "all-reduce", "reduce-scatter", "all-to-all", "collective-permute", "ragged-all-to-all",
         "collective-broadcast")


def arrays(shape):
    """Bytes of each array of a ShapeProto: element_type 2, dimensions 3, tuple_shapes 4."""
    fields_of = message(shape)
    if 4 in fields_of:
        return [one for part in fields_of[4] for one in arrays(part)]
    kind = fields_of.get(2, [0])[0]
    if kind not in BYTES:
        return []
    size = BYTES[kind]
    for dimension in integers(fields_of.get(3, [])):
        size *= dimension
    return [size]


def counts(module):
    """Fields of an HloModuleProto: computations 3, entry_computation_id 6, schedule 7."""
    parts = message(module)
    computations, instructions = {}, {}
    for raw in parts[3]:
        computation = message(raw)
        own = [message(i) for i in computation.get(2, [])]
        for one in own:
            instructions[one[35][0]] = one
        computations[computation[5][0]] = own
    order = {}
    for raw in message(parts[7][0]).get(1, []):
        entry = message(raw)
        order[entry[1][0]] = integers(message(entry[2][0]).get(1, []))
    found, loops = [], []

    def text(one, number):
        return one.get(number, [b""])[0].decode(errors="replace")

    def walk(computation, times, depth):
        for number in order.get(computation, [i[35][0] for i in computations[computation]]):
            one = instructions[number]
            opcode = text(one, 2)
            config = text(one, 43)
            called = integers(one.get(38, []))
            if opcode == "while":
                trips = config.split('"known_trip_count":{"n":"')
                n = int(trips[1].split('"')[0]) if len(trips) > 1 else 1
                loops.append([depth, n if len(trips) > 1 else -1])
                body, condition = called
                walk(condition, times * (n + 1) if len(trips) > 1 else times, depth + 1)  # once more, to leave
                walk(body, times * n, depth + 1)
                continue
            if opcode in ("call", "conditional"):
                for body in called:
                    walk(body, times, depth)
                continue
            kind = opcode.removesuffix("-start")
            inner = one
            if opcode == "async-start":
                inner = computations[called[0]][-1]
                kind = text(inner, 2)
            if kind not in KINDS:
                continue
            operands = [size for i in integers(inner.get(36, [])) for size in arrays(instructions[i][3][0])]
            result = arrays(one[3][0])
            n = len(operands)
            outputs = result[n:2 * n] if len(result) >= 2 * n else result[:n]
            found.append({"name": text(one, 1), "kind": kind, "start": opcode.endswith("-start"), "times": times,
                          "depth": depth, "in": sum(operands), "out": sum(outputs), "operands": n,
                          "sync": '"is_sync":true' in config, "pipelined": '"is_pipelined":true' in config})

    walk(parts[6][0], 1, 0)
    return {"collectives": found, "loops": loops}
