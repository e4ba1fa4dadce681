"""cuda_code.py [--listing] [--table FILE] CUBIN...: the machine code of the GEMM kernels,
as ptxas made it, against limits. `make check-code` compiles the files and runs it.

For each kernel and tile of cuda/conv (of 128 rows, or ROWSxCOLUMNS) the table has
    loop      instructions that a warp issues at most in the main loop for one k-tile: the
              longest way through the loop, all groups of rows present, the next offset
              begun; the mean over the block's warps where one of them brings the weights
    mma       products of the tensor cores among them (HMMA; HGMMA; FFMA in fp32)
    sync      WARPSYNC in the loop: the compiler was not sure that the warp is together
    ahead     loads of fragments (LDSM, LDS) before the first product
    clocks    issue clocks of the four schedulers over clocks of the tensor cores at
              their full rate, one block: above 1.6 or so, where mma.sync reaches 60 %
              of that rate, issue is the limit
    outside   instructions outside the main loop: table, epilogue
    bytes     code
    regs, shared, threads, and the blocks of an SM (of 9.0) that follow from them
Ahead of its wait for the preceding kernel (ACQBULK) a kernel may load from device memory,
the map for its table; convolutions do. It may neither write it nor begin a copy from it.
A kernel of wgmma closes one group of products on any way through the main loop.
Fails where a kernel has 7 % more instructions, three loads ahead fewer or a block fewer than in
tests/results/code-sm_90.txt, and where only one of the two has it. Numbers depend on nvcc; the
margin is for that. After a change that is meant the new table (--table) goes there.

With --listing the files are nvdisasm's text instead; registers, shared memory and blocks are
then unknown and not checked.
Needs nvdisasm: of the toolkit, in NVDISASM, or of the Python package nvidia-cuda-nvdisasm;
exits with 77 where there is none. Without a file it tells that much and no more.
"""
import glob
import importlib.util
import os
import re
import shutil
import struct
import subprocess
import sys

# The table that is kept of the last change, and how far a kernel may be from its row. No loop
# may have a WARPSYNC, except the two of clusters: their warps wait for other blocks'
# copies in loops of their own, behind which the compiler brings them together.
KEPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../results/code-sm_90.txt")
MORE, FEWER_AHEAD = 1.07, 2

PRECISIONS = ("fp32", "tf32", "bf16")
CLUSTERS = {4: " four"}
LOAD = re.compile(r"^(LDSM|LDS)\b")
INSTRUCTION = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;")
LABEL = re.compile(r"^(\.L_x_\d+):")
TARGET = re.compile(r"`\((\.L_x_\d+)\)")


# ---- the control flow of a kernel ----
class Block:
    def __init__(self):
        self.code = []
        self.next = []  # numbers of blocks


def opcode(text):
    words = text.split()
    return words[1] if words[0].startswith("@") else words[0]


def blocks_of(lines):
    """Cuts the lines of a kernel into blocks with their successors. A warp goes on behind
    a BSYNC; the label of a BSSY names that place once more."""
    blocks, labels = [Block()], {}
    for line in lines:
        label, found = LABEL.match(line), INSTRUCTION.match(line)
        if label:
            if blocks[-1].code:
                blocks.append(Block())
            labels[label[1]] = len(blocks) - 1
        elif found:
            blocks[-1].code.append(found[2])
            if re.match(r"(BRA|EXIT|RET|WARPSYNC|CALL|BRX|JMP)\b", opcode(found[2])):
                blocks.append(Block())
    for i, block in enumerate(blocks):
        last = block.code[-1] if block.code else ""
        op = opcode(last) if last else ""
        target = TARGET.search(last)
        is_final = op.split(".")[0] in ("BRA", "EXIT", "RET", "JMP") and \
            not last.startswith("@")
        # `BRA P0, label` and `BRA.U UP0, label` are conditional too
        if op.startswith("BRA") and re.search(r"\bU?P\d\b", last):
            is_final = False
        if target and not op.startswith("BSSY") and target[1] in labels:
            block.next.append(labels[target[1]])
        if not is_final and i + 1 < len(blocks):
            block.next.append(i + 1)
    return blocks


def reachable(blocks):
    seen, todo = {0}, [0]
    while todo:
        for n in blocks[todo.pop()].next:
            if n not in seen:
                seen.add(n)
                todo.append(n)
    return seen


def ahead_of_wait(blocks):
    """The opcodes of all that can run before the wait for the preceding kernel; None
    where there is no wait."""
    seen, todo, codes, has_wait = {0}, [0], [], False
    while todo:
        block = blocks[todo.pop()]
        for text in block.code:
            if opcode(text).startswith("ACQBULK"):
                has_wait = True
                break
            codes.append(opcode(text))
        else:
            todo += [n for n in block.next if n not in seen]
            seen.update(block.next)
    return codes if has_wait else None


def loops_of(blocks):
    """Natural loops as (header, set of blocks)."""
    alive = sorted(reachable(blocks))
    before = {b: [a for a in alive if b in blocks[a].next] for b in alive}
    dominators = {b: set(alive) for b in alive}
    dominators[0] = {0}
    changed = True
    while changed:
        changed = False
        for b in alive[1:]:
            new = set.intersection(*(dominators[a] for a in before[b])) | {b}
            if new != dominators[b]:
                dominators[b], changed = new, True
    loops = {}
    for a in alive:
        for header in blocks[a].next:
            if header not in dominators[a]:
                continue
            body, todo = loops.setdefault(header, {header}), [a]
            while todo:
                b = todo.pop()
                if b not in body:
                    body.add(b)
                    todo += before[b]
    return loops.items()


def longest_way(blocks, header, body):
    """Instructions in the order of the longest way through a loop back to its header, each
    inner loop once; None where there is no way."""
    best, state = {}, {}

    def visit(b):
        state[b] = 1
        follow = [] if header in blocks[b].next else None
        for n in blocks[b].next:
            if n == header or n not in body or state.get(n) == 1:
                continue
            if n not in best:
                visit(n)
            if best[n] is not None and (follow is None or len(best[n]) > len(follow)):
                follow = best[n]
        best[b] = None if follow is None else blocks[b].code + follow
        state[b] = 2

    sys.setrecursionlimit(100000)
    visit(header)
    return best[header]


def most_on_a_way(blocks, header, body, is_one):
    """The most instructions for which is_one holds on any way through a loop back to its
    header, each inner loop once."""
    best, state = {}, {}

    def visit(b):
        state[b] = 1
        follow = 0 if header in blocks[b].next else None
        for n in blocks[b].next:
            if n == header or n not in body or state.get(n) == 1:
                continue
            if n not in best:
                visit(n)
            if best[n] is not None:
                follow = max(follow or 0, best[n])
        best[b] = None if follow is None else \
            follow + sum(1 for t in blocks[b].code if is_one(t))
        state[b] = 2

    sys.setrecursionlimit(100000)
    visit(header)
    return best[header] or 0


def closes_group(text):
    """Whether an instruction closes a group of products of a warpgroup. What the program
    commits behind a branch, ptxas closes by one that multiplies nothing."""
    return opcode(text).startswith("HGMMA") and "gsb0" in text


def brings(block):
    """Whether a block is of the one thread that brings weights by bulk copies."""
    return any(re.match(r"UBLKCP|SYNCS\.ARRIVE\.TRANS64$", opcode(t)) for t in block.code)


def main_loop(blocks, product):
    """The innermost loop that multiplies most: (products, instructions of its longest way,
    how many of them only the warp that brings weights issues, all of the loop, the most
    groups of products that a way through it closes). On tensor
    cores it also copies: the last k-tiles, for which there is nothing more to copy, may
    have a loop of their own."""
    found = None

    def has(body, pattern):
        return any(re.match(pattern, opcode(t)) for i in body for t in blocks[i].code)

    loops = [(h, b) for h, b in loops_of(blocks) if has(b, product) and
             (product == "FFMA" or has(b, "LDGSTS"))]
    loops = loops or [(h, b) for h, b in loops_of(blocks) if has(b, product)]
    for header, body in loops:
        if any(other < body for _, other in loops):
            continue
        way = longest_way(blocks, header, body)
        others = longest_way(blocks, header, {b for b in body if not brings(blocks[b])})
        alone = len(way) - len(others) if others else 0
        products = sum(1 for t in way if re.match(product, opcode(t)))
        whole = [t for i in sorted(body) for t in blocks[i].code]
        if not found or (products, len(way)) > (found[0], len(found[1])):
            groups = most_on_a_way(blocks, header, body, closes_group)
            found = products, way, alone, whole, groups
    return found


# ---- kernels ----
class Kernel:
    """A GEMM kernel by its demangled name; None for any other."""

    def __init__(self, name):
        found = re.search(r"\b(conv|wgmma|wgrad|wgrad_wgmma)_kernel<(.*)>\(", name)
        self.kind = found and found[1]
        if not found:
            return
        numbers = [int(n) for n in
                   re.findall(r"\b(\d+)\b", re.sub(r"[A-Za-z_]\w*", " ", found[2]))]
        form = "whole" if "true" in found[2] else "any"
        self.shared = numbers[-1]
        if self.kind == "conv":
            precision, rows, columns, wm, wn = numbers[:5]
            mt, nt = rows // 16 // wm, columns // wn // 8
            self.threads, self.macs = wm * wn * 32, rows * columns
            self.products = mt * nt * 2
            tile = "%s%d %dx%d" % ("" if rows == 128 else "%dx" % rows, columns, wm, wn)
        elif self.kind == "wgrad":
            precision, edge, wm, wn = numbers[:4]
            self.threads, self.macs = wm * wn * 32, edge * edge
            self.products = edge // wm // 16 * (edge // wn // 8) * 2
            tile = "%d %dx%d" % (edge, wm, wn)
        else:
            precision, (rows, columns) = 2, numbers[:2]
            deep = self.kind == "wgmma" and numbers[6:7] == [3]
            self.threads, self.macs = 256, rows * columns
            self.products = 6 if deep else 4
            tile = "%d%s%s" % (columns, " deep" if deep else "",
                               CLUSTERS.get(next(iter(numbers[5:6]), 1), ""))
        if self.kind == "wgrad_wgmma":
            self.kind, tile, form = "wgrad", "%dx%d" % (rows, columns), "whole"
        self.is_wgmma = found[1] in ("wgmma", "wgrad_wgmma")
        self.macs *= 16 * self.products if self.is_wgmma else (16, 16, 32)[precision]
        if precision == 0:
            self.products = self.macs // self.threads
        # HGMMA.64x8x16 of no register only closes a group
        self.product = "FFMA" if precision == 0 else \
            "HMMA" if not self.is_wgmma else r"HGMMA\.64x\d+x16\.F32"
        # of an SM of 9.0 in a clock: 128 FFMA, 1024 multiply-adds in tf32, 2048 in bf16
        self.rate = (128, 1024, 2048)[precision]
        self.name = "%s %s %s %s" % (self.kind, PRECISIONS[precision], tile, form)

    def measure(self, lines, regs, static_shared):
        blocks = blocks_of(lines)
        total = sum(1 for b in blocks for t in b.code if not opcode(t).startswith("NOP"))
        loop = main_loop(blocks, self.product)
        self.bytes = sum(len(b.code) for b in blocks) * 16
        if not loop:
            raise SystemExit("%s: no loop with products" % self.name)
        products, way, alone, whole, self.groups = loop
        tiles = products / self.products
        codes = [opcode(t) for t in way]
        first = next(i for i, c in enumerate(codes) if re.match(self.product, c))
        self.loop = round((len(way) - alone * (1 - 32 / self.threads)) / tiles)
        self.mma = round(products / tiles)
        self.sync = sum(1 for t in whole if opcode(t).startswith("WARPSYNC"))
        self.ahead = sum(1 for c in codes[:first] if LOAD.match(c))
        self.clocks = self.loop * self.threads / 128 / (self.macs / self.rate)
        self.outside = total - len(whole)
        self.ahead_of_wait = ahead_of_wait(blocks)
        self.regs = regs
        self.blocks = None
        if regs is None:
            return
        self.shared += static_shared
        warps = 65536 // 4 // ((regs * 32 + 255) // 256 * 256) * 4
        self.blocks = min(warps // (self.threads // 32), 2048 // self.threads,
                          233472 // ((self.shared + 127) // 128 * 128 + 1024))

    def is_clustered(self):
        return self.kind == "wgmma" and any(c + " " in self.name for c in CLUSTERS.values())

    def row(self):
        of_cubin = (self.regs, self.shared, self.threads, self.blocks)
        return "%-27s %5d %4d %4d %5d %6.2f %7d %7d" % (
            self.name, self.loop, self.mma, self.sync, self.ahead, self.clocks,
            self.outside, self.bytes) + \
            ("" if self.regs is None else " %4d %6d %7d %6d" % of_cubin)

    def wait_faults(self):
        codes = self.ahead_of_wait
        if codes is None:
            return ["no wait for the preceding kernel"]
        if self.is_clustered() and codes.count("ST.E") == 1:
            # the list of offsets, into the shared memory of the other blocks
            codes = [c for c in codes if c != "ST.E"]
        faults = ["%s ahead of the wait for the preceding kernel" % c for c in sorted(set(codes))
                  if re.match(r"(LDGSTS|STG?|RED|ATOMG?|UBLKCP|%s)\b" % self.product, c)]
        if not any(re.match(r"LDG\b", c) for c in codes):
            faults.append("its table waits for the preceding kernel: no load ahead")
        return faults

    def faults(self, kept):
        if self.name not in kept:
            return ["no limits for it"]
        loop, ahead, outside, blocks = kept[self.name]
        checks = (("instructions of the loop", self.loop, 0, int(MORE * loop)),
                  ("WARPSYNC in the loop", self.sync, 0, 2 if self.is_clustered() else 0),
                  ("loads ahead of the products", self.ahead, ahead - FEWER_AHEAD, 10**9),
                  ("instructions outside the loop", self.outside, 0, int(MORE * outside)))
        if self.blocks is not None:
            checks += (("blocks of an SM", self.blocks, blocks, 32),)
        return ["%s: %d, expected %s" % (
                    what, value, "at least %d" % least if value < least
                    else "at most %d" % most)
                for what, value, least, most in checks if not least <= value <= most] + \
            self.wait_faults() + self.group_faults()

    def group_faults(self):
        """A step closes one group, or its wait for all but the latest one waits for the
        products of the step before, and the tensor cores stand still meanwhile."""
        if not self.is_wgmma or self.groups == 1:
            return []
        return ["groups of products that a step closes: %d, expected 1" % self.groups]


HEADER = "%-27s %5s %4s %4s %5s %6s %7s %7s %4s %6s %7s %6s" % (
    "kernel, tile, form", "loop", "mma", "sync", "ahead", "clocks", "outside", "bytes",
    "regs", "shared", "threads", "blocks")


# ---- files ----
def read_kept():
    """loop, ahead, outside and blocks of each kernel in the kept table."""
    with open(KEPT) as f:
        rows = [line.rsplit(None, 11) for line in f.read().splitlines()[1:]]
    return {r[0]: tuple(int(r[at]) for at in (1, 4, 6, 11)) for r in rows}


def find_nvdisasm():
    program = os.environ.get("NVDISASM") or shutil.which("nvdisasm")
    spec = None if program else importlib.util.find_spec("nvidia")
    for folder in spec.submodule_search_locations if spec else ():
        found = glob.glob(os.path.join(folder, "*", "bin", "nvdisasm"))
        program = found[0] if found else program
    return program


class Cubin:
    """An ELF file of 64 bits: registers and shared memory of its kernels."""

    RESERVED = 1024  # of each block's shared memory, since 9.0; counted in the section

    def __init__(self, path):
        with open(path, "rb") as f:
            data = f.read()
        start, = struct.unpack_from("<Q", data, 40)
        size, n, names = struct.unpack_from("<HHH", data, 58)
        heads = [struct.unpack_from("<IIQQQQIIQQ", data, start + i * size)
                 for i in range(n)]

        def text(section, at):
            begin = heads[section][4] + at
            return data[begin:data.index(b"\0", begin)].decode()

        self.section = {text(names, h[0]): h for h in heads}
        symbols = self.section[".symtab"]
        self.regs = {}
        info = self.section[".nv.info"]
        at = info[4]
        while at < info[4] + info[5]:  # format, attribute, size or value, payload
            form, attribute, length = struct.unpack_from("<BBH", data, at)
            at += 4
            if form != 4:
                continue
            if attribute == 0x2f:  # EIATTR_REGCOUNT: symbol, registers
                symbol, regs = struct.unpack_from("<II", data, at)
                name, = struct.unpack_from("<I", data, symbols[4] + 24 * symbol)
                self.regs[text(symbols[6], name)] = regs
            at += length

    def shared(self, kernel):
        head = self.section.get(".nv.shared." + kernel)
        is_reserved = ".nv.shared.reserved.0" in self.section
        return (head[5] - self.RESERVED * is_reserved) if head else 0


def kernels_of(listing):
    """Yields mangled name and lines of each kernel of nvdisasm's text."""
    name, lines = None, []
    for line in listing.splitlines():
        found = re.match(r"\s*\.section\s+\"?\.?(text\.)?([^\s\",]+)", line)
        if found:
            if name:
                yield name, lines
            name, lines = found[2] if found[1] else None, []
        elif name:
            lines.append(line)
    if name:
        yield name, lines


def demangle(names):
    done = subprocess.run(["c++filt"], input="\n".join(names), text=True, check=True,
                          stdout=subprocess.PIPE)
    return done.stdout.split("\n")


def measure_file(path, is_listing, nvdisasm):
    if is_listing:
        with open(path) as f:
            listing, cubin = f.read(), None
    else:
        done = subprocess.run([nvdisasm, "-c", path], text=True, check=True,
                              stdout=subprocess.PIPE)
        listing, cubin = done.stdout, Cubin(path)
    found = list(kernels_of(listing))
    kernels = []
    for (mangled, lines), name in zip(found, demangle([m for m, _ in found])):
        kernel = Kernel(name)
        if not kernel.kind:
            continue
        kernel.measure(lines, cubin and cubin.regs[mangled],
                       cubin.shared(mangled) if cubin else 0)
        kernels.append(kernel)
    return kernels


def main(words):
    is_listing = "--listing" in words
    table = None
    if "--table" in words:
        at = words.index("--table")
        table = words[at + 1]
        del words[at:at + 2]
    paths = [w for w in words if w != "--listing"]
    nvdisasm = find_nvdisasm()
    if not is_listing and not nvdisasm:
        print("SKIPPED: no nvdisasm (the Python package nvidia-cuda-nvdisasm has it): "
              "the machine code of the GEMM kernels is NOT checked")
        return 77
    if not paths:
        return 0
    kernels = sorted((k for p in paths for k in measure_file(p, is_listing, nvdisasm)),
                     key=lambda k: (k.name.split()[:2],
                                    [int(w) for w in k.name.split()[2].split("x")][::-1]))
    rows = [HEADER] + [k.row() for k in kernels]
    print("\n".join(rows))
    if table:
        with open(table, "w") as f:
            f.write("\n".join(rows) + "\n")
    kept = read_kept()
    faults = ["%s: %s" % (k.name, f) for k in kernels for f in k.faults(kept)]
    if not is_listing:
        have = {k.name for k in kernels}
        faults += ["%s: not in the code" % name for name in sorted(kept) if name not in have]
    print("\n".join(faults + ["%d kernels, %d faults" % (len(kernels), len(faults))]))
    return 1 if faults or not kernels else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
