"""read_tiff.py FILE: prints a GeoTIFF of floats in planes as text, with nothing but Python:
a line of its fields, then "band row column value" of each cell with a value."""
import math
import struct
import sys

SIZE = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 12: 8}
FORM = {3: "H", 4: "I", 12: "d"}


def unpack_lzw(data):
    """LZW as TIFF has it: codes of 9 to 12 bits from the highest bit on."""
    out, table, width, at, before = [], [], 9, 0, None
    while True:
        code = 0
        for i in range(at, at + width):
            code = code << 1 | (data[i >> 3] >> (7 - (i & 7)) & 1)
        at += width
        if code == 257:
            return b"".join(out)
        if code == 256:
            table = [bytes([i]) for i in range(256)] + [b"", b""]
            width, before = 9, None
            continue
        text = table[code] if code < len(table) else before + before[:1]
        out.append(text)
        if before is not None:
            table.append(before + text[:1])
        before = text
        width = 9 + (len(table) >= 511) + (len(table) >= 1023) + (len(table) >= 2047)


data = open(sys.argv[1], "rb").read()
assert data[:4] == b"II*\0", "not a TIFF with the lowest byte first"
at = struct.unpack_from("<I", data, 4)[0]
field = {}
for i in range(struct.unpack_from("<H", data, at)[0]):
    tag, kind, n = struct.unpack_from("<HHI", data, at + 2 + 12 * i)
    place = at + 10 + 12 * i
    if n * SIZE[kind] > 4:
        place = struct.unpack_from("<I", data, place)[0]
    if kind == 2:
        field[tag] = data[place : place + n].rstrip(b"\0").decode()
    else:
        field[tag] = struct.unpack_from("<%d%s" % (n, FORM[kind]), data, place)
width, height, bands = field[256][0], field[257][0], field[277][0]
assert field[284] == (2,) and set(field[258]) == {32} and set(field[339]) == {3}
print("size", width, height, "bands", bands, "scale", *field[33550])
print("tie", *field[33922])
print("keys", *field[34735])
print("names", field[42112], "nodata", field[42113])
strips = len(field[273]) // bands
for k, begin in enumerate(field[273]):
    rows = data[begin : begin + field[279][k]]
    rows = unpack_lzw(rows) if field[259][0] == 5 else rows
    for i in range(len(rows) // 4):
        x = struct.unpack_from("<f", rows, 4 * i)[0]
        if not math.isnan(x):
            row = k % strips * field[278][0] + i // width
            print(k // strips, row, i % width, "%.6f" % x)
