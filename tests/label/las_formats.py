"""las_formats.py SOURCE FOLDER: copies of a LAS scan by laspy and lazrs in every point format,
LAS and LAZ, with further fields and records."""
import sys

import laspy
import numpy as np
from laspy.vlrs.vlr import VLR

source, folder = laspy.read(sys.argv[1]), sys.argv[2]
rng = np.random.default_rng(1)
n = len(source.points)
for fmt in range(11):
    h = laspy.LasHeader(point_format=fmt, version="1.%d" % (2 if fmt < 4 else 3 if fmt < 6 else 4))
    h.scales, h.offsets = source.header.scales, source.header.offsets
    h.vlrs.append(VLR("someone", 7, "a record", rng.bytes(123)))
    las = laspy.LasData(h)
    las.add_extra_dim(laspy.ExtraBytesParams("three", "3int16", "a vector"))
    las.add_extra_dim(laspy.ExtraBytesParams("scaled", "int32", "", np.array([7.]), np.array([.01])))
    las.points = laspy.ScaleAwarePointRecord.zeros(n, header=h)
    for d in las.point_format.dimensions:  # each has other bits; the place is the source's
        if d.name in ("X", "Y", "Z"):
            las[d.name] = np.asarray(source[d.name])
        elif d.name not in ("return_number", "number_of_returns", "scanner_channel"):
            most = min(2 ** (d.num_bits // d.num_elements) if d.kind.name != "FloatingPoint" else 99, 120)
            shape = (n, d.num_elements) if d.num_elements > 1 else n
            las[d.name] = rng.integers(0, most, shape)
    las["return_number"] = rng.integers(1, 4, n)
    las["number_of_returns"] = np.full(n, 4)
    if fmt >= 6:
        las.evlrs = laspy.vlrs.vlrlist.VLRList()
        las.evlrs.append(VLR("someone", 8, "an extended record", rng.bytes(70001)))
    las.write(f"{folder}/f{fmt}.las")
    las.write(f"{folder}/z{fmt}.laz", laz_backend=laspy.LazBackend.Lazrs)
