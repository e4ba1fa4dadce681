"""las_copies.py SOURCE COPY CLASSES [FIELD...]: COPY, which sptrain label made of SOURCE,
has all its points' bytes, records and header but the class (if CLASSES is 1) and what the
added FIELDs need, as laspy and lazrs read both."""
import struct
import sys

import laspy
import numpy as np


def records_of(b):
    """User, number and content of the records, but LAZ's; those of extra bytes apart."""
    found, extra = [], b""
    at = struct.unpack_from("<H", b, 94)[0]
    for _ in range(struct.unpack_from("<I", b, 100)[0]):
        number, n = struct.unpack_from("<HH", b, at + 18)
        user, body = b[at + 2:at + 18].rstrip(b"\0"), b[at + 54:at + 54 + n]
        if (user, number) == (b"LASF_Spec", 4):
            extra += body
        elif user != b"laszip encoded":
            found.append((user, number, b[at + 22:at + 54], body))
        at += 54 + n
    at, n_extended = struct.unpack_from("<QI", b, 235) if b[25] >= 4 else (0, 0)
    for _ in range(n_extended):
        n = struct.unpack_from("<Q", b, at + 20)[0]
        found.append(b[at:at + 60 + n])
        at += 60 + n
    return found, extra


def header_of(b):
    head = bytearray(b[:struct.unpack_from("<H", b, 94)[0]])
    for at, n in ((96, 8), (104, 3), (227, 16)):  # offsets, counts of records, format
        head[at:at + n] = bytes(len(head[at:at + n]))
    return head


def points_of(path):
    las = laspy.read(path, laz_backend=laspy.LazBackend.Lazrs)
    rows = np.ascontiguousarray(las.points.array).view(np.uint8)
    return las, rows.reshape(len(las.points), -1)


source, copy = (open(p, "rb").read() for p in sys.argv[1:3])
added = sys.argv[4:]
(a, rows_a), (b, rows_b) = (points_of(p) for p in sys.argv[1:3])
assert header_of(source) == header_of(copy), "header"
(records_a, extra_a), (records_b, extra_b) = records_of(source), records_of(copy)
assert records_a == records_b, "records"
assert extra_b.startswith(extra_a), "descriptions of extra bytes"
names = list(a.point_format.dimension_names)
assert list(b.point_format.dimension_names) == names + added, "fields"
if sys.argv[3] == "1":
    assert (np.asarray(a.classification) != np.asarray(b.classification)).any(), "a test of nothing"
    at, mask = (15, 0xe0) if a.point_format.id < 6 else (16, 0)
    for rows in rows_a, rows_b:
        rows[:, at] &= mask
assert np.array_equal(rows_a, rows_b[:, :rows_a.shape[1]]), "points"
