"""laz_lazrs.py COPY [FILE...]: what COPY (tests/tools/laz_copy) compresses is read by
lazrs as the same points, and the other way round, for every point format; each FILE.laz
is read as lazrs reads it, and copied as the same points."""
import struct
import subprocess
import sys

import laspy
import lazrs
import numpy as np

SIZE = [20, 28, 26, 34, 57, 63, 30, 36, 38, 59, 67]
TIME = {1: 20, 3: 20, 4: 20, 5: 20}
N, CHUNK = 3000, 1000


def records(fmt, extra, channels, rng):
    """Points of scan lines; bytes without a meaning here are small numbers."""
    a = rng.integers(0, 3, (N, SIZE[fmt] + extra), dtype=np.uint8)
    xyz = np.cumsum(rng.integers(-50, 60, (N, 3)), axis=0).astype("<i4")
    a[:, :12] = xyz.view(np.uint8).reshape(N, 12)
    n = rng.integers(1, 6, N)
    r = rng.integers(0, 100, N) % n + 1
    a[:, 14] = r | n << (3 if fmt < 6 else 4)
    if fmt >= 6:
        a[:, 15] = rng.integers(0, channels, N) << 4
    at = 22 if fmt >= 6 else TIME.get(fmt)
    if at:
        time = np.cumsum(rng.choice([0, 0, 1e-5, 2e-5, 5e-3], N)) + 1e8
        time = np.where(rng.random(N) < 0.02, rng.choice([1e5, -3.5], N), time)
        a[:, at:at + 8] = time.astype("<f8").view(np.uint8).reshape(N, 8)
    a[N // 2:N // 2 + 300, 20:] = rng.integers(0, 256, (300, a.shape[1] - 20))
    return a


def las(path, fmt, a):
    minor = 2 if fmt < 4 else 3 if fmt < 6 else 4
    size = {2: 227, 3: 235, 4: 375}[minor]
    h = bytearray(size)
    h[:4], h[24], h[25], h[104] = b"LASF", 1, minor, fmt
    struct.pack_into("<HII", h, 94, size, size, 0)
    struct.pack_into("<HI", h, 105, a.shape[1], N if fmt < 6 else 0)
    struct.pack_into("<6d", h, 131, 0.01, 0.01, 0.01, 0, 0, 0)
    if minor == 4:
        struct.pack_into("<Q", h, 247, N)
    open(path, "wb").write(bytes(h) + a.tobytes())


def points(path):
    return laspy.read(path, laz_backend=laspy.LazBackend.Lazrs).points.array.tobytes()


def copy(program, source, to):
    subprocess.run([program, source, to], check=True)


def lazrs_copy(source, to):
    """The same file, compressed by lazrs in chunks of CHUNK points."""
    b = bytearray(open(source, "rb").read())
    fmt, at = b[104], struct.unpack_from("<I", b, 96)[0]
    size = struct.unpack_from("<H", b, 105)[0]
    vlr = bytearray(lazrs.LazVlr.new_for_compression(fmt, size - SIZE[fmt]).record_data())
    struct.pack_into("<I", vlr, 12, CHUNK)
    head = bytearray(54)
    head[2:16] = b"laszip encoded"
    struct.pack_into("<HH", head, 18, 22204, len(vlr))
    points_at = at + 54 + len(vlr)
    struct.pack_into("<II", b, 96, points_at, 1)
    b[104] |= 128
    with open(to, "wb+") as f:
        f.write(b[:at] + head + vlr)
        c = lazrs.LasZipCompressor(f, lazrs.LazVlr(bytes(vlr)))
        c.compress_many(np.frombuffer(bytes(b[at:]), np.uint8))
        c.done()


def copc(path, a):
    """COPC of format 6 in three chunks of different sizes; their places and sizes."""
    vlr = bytearray(lazrs.LazVlr.new_for_compression(6, 0).record_data())
    struct.pack_into("<I", vlr, 12, 0xFFFFFFFF)
    chunks = [a[:500], a[500:700], a[700:]]
    h = bytearray(375)
    h[:4], h[24], h[25], h[104] = b"LASF", 1, 4, 6 | 128
    at = 375 + 54 + 160 + 54 + len(vlr)
    struct.pack_into("<HII", h, 94, 375, at, 2)
    struct.pack_into("<H6d", h, 105, 30, 0, 0, 0, 0, 0, 0)
    struct.pack_into("<3d", h, 131, 0.01, 0.01, 0.01)
    struct.pack_into("<Q", h, 247, N)
    info, head = bytearray(54 + 160), bytearray(54)
    info[2:6], head[2:16] = b"copc", b"laszip encoded"
    struct.pack_into("<HH", info, 18, 1, 160)
    struct.pack_into("<HH", head, 18, 22204, len(vlr))
    with open(path, "wb+") as f:
        f.write(h + info + head + vlr)
        c = lazrs.LasZipCompressor(f, lazrs.LazVlr(bytes(vlr)))
        for chunk in chunks:
            c.compress_many(chunk.reshape(-1))
            c.finish_current_chunk()
        c.done()
        f.seek(0, 2)
        evlrs = f.tell()
        table = chunk_places(path, f, at, vlr)
        page = b"".join(struct.pack("<iiiiQii", 1, i, 0, 0, *table[i], len(chunks[i]))
                        for i in range(3))
        page += struct.pack("<iiiiQii", 2, 0, 0, 0, evlrs + 60 + 4 * 32, 32, -1)
        page += struct.pack("<iiiiQii", 2, 1, 0, 0, 0, 0, 0)
        e = bytearray(60)
        e[2:6] = b"copc"
        struct.pack_into("<HQ", e, 18, 1000, len(page))
        f.write(e + page)
        struct.pack_into("<QI", h, 235, evlrs, 1)
        struct.pack_into("<Q", info, 54 + 40, evlrs + 60)
        f.seek(0)
        f.write(h + info)


def chunk_places(path, f, at, vlr):
    """(offset, bytes) of each chunk by the table."""
    f.flush()
    with open(path, "rb") as g:
        g.seek(at)
        table = lazrs.read_chunk_table(g, lazrs.LazVlr(bytes(vlr)))
    places, to = [], at + 8
    for entry in table:
        size = entry[1] if isinstance(entry, tuple) else entry.byte_count
        places.append((to, size))
        to += size
    return places


def check_copc(path, a):
    """Each entry of the index names a chunk; 0: all are right."""
    b = open(path, "rb").read()
    evlrs = struct.unpack_from("<Q", b, 235)[0]
    at = b.index(b"laszip encoded") + 52
    vlr = lazrs.LazVlr(b[at:at + struct.unpack_from("<H", b, at - 34)[0]])
    ok = struct.unpack_from("<Q", b, 375 + 54 + 40)[0] == evlrs + 60
    first = 0
    for i in range(3):
        offset, size, n = struct.unpack_from("<Qii", b, evlrs + 60 + 32 * i + 16)
        out = np.zeros(n * 30, np.uint8)
        lazrs.decompress_points_with_chunk_table(
            np.frombuffer(b[offset:offset + size], np.uint8), vlr.record_data(), out,
            [(n, size)])
        ok = ok and out.tobytes() == a[first:first + n].tobytes()
        first += n
    page = struct.unpack_from("<Q", b, evlrs + 60 + 96 + 16)[0]
    return 0 if ok and page == evlrs + 60 + 128 else 1


def main():
    program, bad = sys.argv[1], 0
    rng = np.random.default_rng(1)
    for fmt in range(11):
        for extra, channels in ((0, 1), (3, 3)):
            a = records(fmt, extra, channels, rng)
            las("a.las", fmt, a)
            copy(program, "a.las", "a.laz")
            if points("a.laz") != a.tobytes():
                print(f"format {fmt}, {extra} extra bytes: lazrs reads other points")
                bad = 1
            # lazrs reads wave packets in several channels otherwise than it wrote them.
            if fmt >= 9 and channels > 1:
                continue
            lazrs_copy("a.las", "b.laz")
            copy(program, "b.laz", "b.las")
            if open("b.las", "rb").read() != open("a.las", "rb").read():
                print(f"format {fmt}, {extra} extra bytes: other points than lazrs wrote")
                bad = 1
    a = records(6, 0, 1, rng)
    copc("d.laz", a)
    copy(program, "d.laz", "e.laz")
    if points("d.laz") != a.tobytes() or points("e.laz") != a.tobytes():
        print("COPC: other points")
        bad = 1
    if check_copc("d.laz", a) or check_copc("e.laz", a):
        print("COPC: the index does not name the chunks")
        bad = 1
    for path in sys.argv[2:]:
        copy(program, path, "c.las")
        copy(program, "c.las", "c.laz")
        if not points(path) == points("c.las") == points("c.laz"):
            print(f"{path}: other points than lazrs reads")
            bad = 1
    print(f"11 point formats and {len(sys.argv) - 2} files compared")
    return bad


sys.exit(main())
