#!/usr/bin/env python3
"""The training step of the minkunet networks on spconv and PyTorch, to be set beside
sptrain's: the same layers, voxels, loss and optimizer, on the same GPU.

    peer_spconv.py --raw FILE [OPTION ...]     measures; JSON lines as spbench's
    peer_spconv.py --dry [--net N]             prints the layers; needs no package

FILE is what `spbench voxels --shard SHARD --out FILE` writes. Weights are random.
Kernel maps are built anew in every step, as sptrain's are; coordinates and features lie
on the device already, which sptrain's loader brings there in every step. fp16 and bf16
are autocast; spconv 2.3.8 casts to fp16 in either, so its fp16 is what stands beside
sptrain's bf16 (conv_dtype tells). Where torch, spconv or a GPU is missing it says so and
ends with 77.
"""

import argparse
import contextlib
import json
import sys
import time

DEEP, TWO, ONE = (2, 3, 4, 6, 2, 2, 2, 2), (2,) * 8, (1,) * 8
BLOCKS = {"minkunet14": ONE, "minkunet18": TWO, "minkunet34": DEEP}
PLANES = (32, 64, 128, 256, 256, 128, 96, 96)  # four stages down, four up
STEM = 32


def layers(net, stem, c_in, classes):
    """Rows (name, op, level, kernel, c_in, c_out) of what has parameters; level: log2
    of the output's stride."""
    rows = []

    def unit(name, norm, op, level, kernel, a, b):
        rows.append((name, op, level, kernel, a, b))
        rows.append((norm, "batchnorm", level, 1, b, b))

    def blocks(stage, level, a, planes):
        for i in range(BLOCKS[net][stage - 1]):
            at = "block%d.%d." % (stage, i)
            unit(at + "conv1", at + "norm1", "conv", level, 3, a, planes)
            unit(at + "conv2", at + "norm2", "conv", level, 3, planes, planes)
            if a != planes:
                down = at + "downsample."
                unit(down + "0", down + "1", "conv", level, 1, a, planes)
            a = planes
        return a

    unit("conv0p1s1", "bn0", "conv", 0, stem, c_in, STEM)
    c, skip = STEM, []
    for s in range(1, 5):
        skip.append(c)
        unit("conv%dp%ds2" % (s, 2 ** (s - 1)), "bn%d" % s, "down", s, 2, c, c)
        c = blocks(s, s, c, PLANES[s - 1])
    for s in range(4, 8):
        name = "convtr%dp%ds2" % (s, 2 ** (8 - s))
        unit(name, "bntr%d" % s, "up", 7 - s, 2, c, PLANES[s])
        c = blocks(s + 1, 7 - s, PLANES[s] + skip.pop(), PLANES[s])
    rows.append(("final", "conv", 0, 1, c, classes))
    return rows


def parameters(row):
    name, op, _, kernel, a, b = row
    if op == "batchnorm":
        return 2 * b
    return kernel**3 * a * b + (b if name == "final" else 0)


def print_layers(net, stem, c_in, classes):
    """name, stride of the output, kernel, channels, parameters; their sum."""
    rows = layers(net, stem, c_in, classes)
    for row in rows:
        print(row[0], 2 ** row[2], row[3], row[4], row[5], parameters(row))
    print("sum", sum(parameters(row) for row in rows))


def skip(why):
    print("skipped: " + why)
    sys.exit(77)


def make_network(torch, spconv, rows, net):
    """The module, from the same rows that --dry prints; each must be used."""

    def make(name, op, level, kernel, a, b):
        if op == "batchnorm":
            return torch.nn.BatchNorm1d(b)
        if op == "down":
            key = "down%d" % level
            return spconv.SparseConv3d(a, b, 2, stride=2, bias=False, indice_key=key)
        if op == "up":
            key = "down%d" % (level + 1)
            return spconv.SparseInverseConv3d(a, b, 2, bias=False, indice_key=key)
        key = "same%d_%d" % (level, kernel)
        return spconv.SubMConv3d(a, b, kernel, bias=name == "final", indice_key=key)

    class Network(torch.nn.Module):
        def __init__(self):
            super().__init__()
            parts = {r[0].replace(".", "-"): make(*r) for r in rows}
            self.part = torch.nn.ModuleDict(parts)
            self.used = set()

        def at(self, name):
            self.used.add(name)
            return self.part[name.replace(".", "-")]

        def unit(self, x, conv, norm):
            x = self.at(conv)(x)
            self.dtype = str(x.features.dtype)
            return x.replace_feature(self.at(norm)(x.features))

        def relu(self, x, other=None):
            f = x.features if other is None else x.features + other.features
            return x.replace_feature(torch.relu(f))

        def blocks(self, x, stage):
            for i in range(BLOCKS[net][stage - 1]):
                at = "block%d.%d." % (stage, i)
                y = self.relu(self.unit(x, at + "conv1", at + "norm1"))
                y = self.unit(y, at + "conv2", at + "norm2")
                if (at + "downsample.0").replace(".", "-") in self.part:
                    x = self.unit(x, at + "downsample.0", at + "downsample.1")
                x = self.relu(y, x)
            return x

        def forward(self, x):
            x = self.relu(self.unit(x, "conv0p1s1", "bn0"))
            skips = []
            for s in range(1, 5):
                skips.append(x)
                x = self.unit(x, "conv%dp%ds2" % (s, 2 ** (s - 1)), "bn%d" % s)
                x = self.blocks(self.relu(x), s)
            for s in range(4, 8):
                name = "convtr%dp%ds2" % (s, 2 ** (8 - s))
                x = self.relu(self.unit(x, name, "bntr%d" % s))
                both = torch.cat([x.features, skips.pop().features], 1)
                x = self.blocks(x.replace_feature(both), s + 1)
            return self.at("final")(x).features

    return Network()


def read_raw(torch, path):
    """(features, classes, samples): each sample its coordinates, features, labels."""
    with open(path, "rb") as file:
        head = file.readline().split()
        if head[:2] != [b"sptrain-raw", b"1"]:
            sys.exit("%s: not written by spbench voxels" % path)
        n, rows, columns, classes = (int(head[i]) for i in (3, 5, 7, 9))
        data = bytearray(file.read())
    size = 8 * (n + 1) + rows * (12 + 4 * columns + 4)
    if len(data) != size:
        words = "%s: %d bytes behind the first line, expected %d"
        sys.exit(words % (path, len(data), size))

    def take(at, count, dtype):
        return torch.frombuffer(data, dtype=dtype, count=count, offset=at)

    offset = take(0, n + 1, torch.int64).tolist()
    at = 8 * (n + 1)
    coords = take(at, 3 * rows, torch.int32).view(rows, 3)
    features = take(at + 12 * rows, columns * rows, torch.float32).view(rows, columns)
    labels = take(at + (12 + 4 * columns) * rows, rows, torch.int32)
    samples = [
        (coords[a:b], features[a:b], labels[a:b].long())
        for a, b in zip(offset, offset[1:])
    ]
    return columns, classes, samples


def collate(torch, samples, batch, device):
    """Rows (sample, z, y, x) from 0 on at multiples of the coarsest stride, so that the
    levels are sptrain's; a shape that strides divide."""
    index, features, labels, top = [], [], [], 0
    for b in range(batch):
        c, f, l = samples[b % len(samples)]
        base = torch.div(c.min(0).values, 16, rounding_mode="floor") * 16
        c = (c - base).flip(1)
        top = max(top, int(c.max()) + 1)
        index.append(torch.cat([torch.full((len(c), 1), b, dtype=torch.int32), c], 1))
        features.append(f)
        labels.append(l)
    shape = [(top + 15) // 16 * 16] * 3
    return [torch.cat(x).to(device) for x in (index, features, labels)] + [shape]


def median(values):
    """Median, and quartile distance over it, as spbench has them."""
    v = sorted(values)
    n = len(v)
    middle = v[n // 2] if n % 2 else 0.5 * (v[n // 2 - 1] + v[n // 2])
    return middle, (v[3 * n // 4] - v[n // 4]) / middle


class Device:
    """The clock and memory of a GPU, or of the CPU where logic is to be tried."""

    def __init__(self, torch, name):
        self.torch, self.name, self.is_gpu = torch, name, name == "cuda"

    def now(self):
        if self.is_gpu:
            self.torch.cuda.synchronize()
        return time.perf_counter()

    def autocast(self, precision):
        half = {"bf16": self.torch.bfloat16, "fp16": self.torch.float16}
        if not self.is_gpu or precision not in half:
            return contextlib.nullcontext()
        return self.torch.autocast("cuda", dtype=half[precision])

    def memory(self):
        if not self.is_gpu:
            return {}
        free, total = self.torch.cuda.mem_get_info()
        peak = self.torch.cuda.max_memory_allocated()
        return {"memory_bytes": total - free, "peak_bytes": peak}

    def words(self):
        return self.torch.cuda.get_device_name() if self.is_gpu else "cpu"


def measure_step(torch, spconv, device, options, data, net, precision, batch):
    columns, classes, samples = data
    rows = layers(net, options.stem, columns, classes)
    index, features, labels, shape = collate(torch, samples, batch, device.name)
    if device.is_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    torch.manual_seed(1)
    network = make_network(torch, spconv, rows, net).to(device.name).train()
    optim = torch.optim.SGD(
        network.parameters(), lr=0.01, momentum=0.9, nesterov=True, weight_decay=1e-4
    )
    scaler = torch.cuda.amp.GradScaler(enabled=precision == "fp16" and device.is_gpu)
    count = sum(p.numel() for p in network.parameters())
    assert count == sum(parameters(row) for row in rows), count
    losses = []

    def step():
        begin = device.now()
        optim.zero_grad(set_to_none=True)
        with device.autocast(precision):
            x = spconv.SparseConvTensor(features, index, shape, batch)
            logits = network(x)
        loss_of = torch.nn.functional.cross_entropy
        loss = loss_of(logits.float(), labels, ignore_index=-1)
        scaler.scale(loss).backward()
        scaler.step(optim)
        scaler.update()
        end = device.now()
        losses.append(float(loss))
        return end - begin

    for _ in range(options.warm):
        step()
    assert network.used == {row[0] for row in rows}, "layers that were not used"
    ms, spread = median([1e3 * step() for _ in range(options.repeats)])
    if losses[-1] != losses[-1]:
        raise RuntimeError("the loss is not a number")
    times = dict(n=len(index), ms=ms, spread=spread, repeats=options.repeats)
    ends = dict(loss_first=losses[0], loss_last=losses[-1], conv_dtype=network.dtype)
    what = dict(name="step", net=net, stem=options.stem, batch=batch)
    return dict(**what, **times, **ends, **device.memory())


def measure_ops(torch, spconv, device, options, data, precision, c):
    """Single layers of c channels on the first sample, named as spbench ops has them; a
    forward with and without its kernel map, and both gradients together."""
    index, _, _, shape = collate(torch, data[2], 1, device.name)
    half = {"bf16": torch.bfloat16, "fp16": torch.float16}
    dtype = half.get(precision, torch.float32)
    same = spconv.SubMConv3d(c, c, 3, bias=False, indice_key="same")
    same = same.to(device.name, dtype)
    down = spconv.SparseConv3d(c, c, 2, stride=2, bias=False, indice_key="down")
    down = down.to(device.name, dtype)
    features = torch.rand(len(index), c, device=device.name, dtype=dtype)

    def fresh(grad=False):
        own = features.clone().requires_grad_(grad)
        return spconv.SparseConvTensor(own, index, shape, 1)

    def timed(call, calls):
        begin = device.now()
        for _ in range(calls):
            call()
        return 1e3 * (device.now() - begin) / calls

    def row(name, call):
        calls = 10 if device.is_gpu else 1
        timed(call, 3)
        ms, spread = median([timed(call, calls) for _ in range(options.repeats)])
        times = dict(ms=ms, spread=spread, repeats=options.repeats)
        return dict(name=name, n=len(index), c_in=c, c_out=c, **times)

    out = []
    with torch.no_grad():
        x = fresh()
        x.indice_dict.update(same(x).indice_dict)
        out.append(row("conv3_forward", lambda: same(x)))
        out.append(row("conv3_rebuilt", lambda: same(fresh())))
        out.append(row("down2_rebuilt", lambda: down(fresh())))
    x = fresh(True)
    y = same(x).features
    g = torch.ones_like(y)
    inputs = [x.features, same.weight]
    backward = lambda: torch.autograd.grad(y, inputs, g, retain_graph=True)
    out.append(row("conv3_grads", backward))
    return out


def parse():
    p = argparse.ArgumentParser(description="the minkunet training step on spconv")

    def words(text):
        return [word for word in text.split(",") if word]

    def numbers(text):
        return [int(word) for word in text.split(",")]

    p.add_argument("--raw", help="voxels, as spbench voxels writes them")
    p.add_argument("--net", type=words, default=["minkunet34"], help=",".join(BLOCKS))
    p.add_argument("--stem", type=int, default=5, help="kernel of the first layer")
    p.add_argument("--batch", type=numbers, default=[2])
    p.add_argument("--precision", type=words, default=["fp32", "tf32", "fp16"])
    p.add_argument("--channels", type=numbers, default=[], help="single layers too")
    p.add_argument("--warm", type=int, default=5)
    p.add_argument("--repeats", type=int, default=15)
    p.add_argument("--dry", action="store_true", help="print the layers, run nothing")
    p.add_argument("--cpu", action="store_true", help="try the logic on a CPU, in fp32")
    options = p.parse_args()
    for net in options.net:
        if net not in BLOCKS:
            p.error("--net %s: expected %s" % (net, ", ".join(BLOCKS)))
    if not options.dry and not options.raw:
        p.error("--raw FILE is missing")
    return options


def jobs(torch, spconv, device, options, data):
    """(what, function) of all measurements."""
    given = torch, spconv, device, options, data
    for precision in options.precision:
        for net in options.net:
            for batch in options.batch:
                what = dict(net=net, batch=batch, precision=precision)
                yield what, lambda: [measure_step(*given, net, precision, batch)]
        for c in options.channels:
            what = dict(c_in=c, precision=precision)
            yield what, lambda: measure_ops(*given, precision, c)


def main():
    options = parse()
    if options.dry:
        for net in options.net:
            print_layers(net, options.stem, 4, 20)
        return 0
    try:
        import torch
        import spconv
        import spconv.constants
        import spconv.pytorch as layers_of
        import spconv.pytorch.ops
    except Exception as error:  # a broken installation is no failure of ours
        skip("no torch or no spconv (%s)" % error)
    if not options.cpu and not torch.cuda.is_available():
        skip("torch sees no GPU")
    device = Device(torch, "cpu" if options.cpu else "cuda")
    if options.cpu:  # its gradients ask for a stream of the GPU even so
        layers_of.ops.get_current_stream = lambda: 0
    data = read_raw(torch, options.raw)
    version = getattr(spconv, "__version__", "?")
    peer = "spconv %s, torch %s" % (version, torch.__version__)
    failed = 0
    for what, run in jobs(torch, layers_of, device, options, data):
        spconv.constants.SPCONV_ALLOW_TF32 = what["precision"] == "tf32"
        torch.backends.cuda.matmul.allow_tf32 = what["precision"] == "tf32"
        try:
            for row in run():
                row.update(run="peer", peer=peer, device=device.words())
                row.update(precision=what["precision"])
                print(json.dumps(row), flush=True)
        except Exception as error:  # a precision that spconv lacks, memory
            failed += 1
            text = str(error).split("\n")[0]
            print("%s: %s: %s" % (what, type(error).__name__, text), file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
