"""An independent float64 reference of whole networks, in numpy: coordinates, kernel maps, forward,
loss and gradients of `dummy` and `minkunet18` from the documented meaning alone.

usage: reference.py write SHARD FAMILY STEM WIDTH WEIGHTS.h5  random weights for run.init_from
       reference.py compare SHARD FAMILY STEM WIDTH WEIGHTS.h5 RUN...
Each folder RUN is that of one SGD step (momentum > 0, weight_decay = 0), so /optim/m holds the
gradient. Exits 1 where loss, gradients or running statistics differ by more than the tolerance.
"""
import json
import sys

import h5py
import numpy as np


class Tensor:
    """Values [n, c] on a level (tensor stride), with a gradient."""

    def __init__(self, value, stride, back=lambda grad: None):
        self.value, self.stride, self.back = value, stride, back
        self.grad = np.zeros_like(value)


class Net:
    def __init__(self, shard, params, family, stem, width):
        self.params, self.family, self.stem, self.width = params, family, stem, width
        self.grads = {}
        self.rng = None
        self.running = {}
        self.tape = []
        with h5py.File(shard) as f:
            offsets = f["offsets"][:]
            sample = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
            coords = f["coords"][:].astype(np.int64)
            self.features = f["features"][:].astype(np.float64)
            self.labels = f["labels"][:].astype(np.int64)
            self.ignore = int(f.attrs["ignore_label"])
            self.classes = int(f.attrs["num_classes"])
            if "feature_mean" in f.attrs:
                self.features = (self.features - f.attrs["feature_mean"]) / f.attrs["feature_std"]
        self.coords = {1: np.column_stack([sample, coords])}
        self.maps = {}

    def level(self, stride):
        if stride not in self.coords:
            fine = self.coords[1]
            coarse = fine.copy()
            coarse[:, 1:] = np.floor_divide(fine[:, 1:], stride) * stride
            self.coords[stride] = np.unique(coarse, axis=0)
        return self.coords[stride]

    def pairs(self, s_in, s_out, kernel):
        """Rows (in, out) of each offset of the convolution from stride s_in to s_out >= s_in."""
        key = (s_in, s_out, kernel)
        if key not in self.maps:
            row = {tuple(c): i for i, c in enumerate(self.level(s_in))}
            low = -(kernel - 1) // 2 if kernel % 2 else 0
            result = []
            for k in range(kernel**3):
                d = np.array([0, low + k % kernel, low + k // kernel % kernel, low + k // kernel**2])
                found = [(row.get(tuple(c)), o) for o, c in enumerate(self.level(s_out) + s_in * d)]
                found = [p for p in found if p[0] is not None]
                result.append(np.array(found, dtype=np.int64).reshape(-1, 2))
            self.maps[key] = result
        return self.maps[key]

    def param(self, name, *shape):
        """A parameter; where weights are to be written, a new one of this shape."""
        if name not in self.params and self.rng:
            self.params[name] = self.rng.uniform(0.5, 1.5, shape) if len(shape) == 1 else \
                self.rng.normal(size=shape) / np.sqrt(np.prod(shape[:-1]))
        return self.params[name]

    def add_grad(self, name, grad):
        self.grads[name] = self.grads.get(name, 0) + grad

    def emit(self, value, stride, back):
        out = Tensor(value, stride, back)
        self.tape.append(out)
        return out

    def conv(self, name, x, c_out, kernel=3, stride=1, transpose=False, bias=False):
        c_in = x.value.shape[1]
        stored = self.param(name + "/weight", *([] if kernel == 1 else [kernel**3]), c_in, c_out)
        w = stored.reshape(kernel**3, c_in, c_out)
        if transpose:
            s_out = x.stride // stride
            maps = [p[:, ::-1] for p in self.pairs(s_out, x.stride, kernel)]
        else:
            s_out = x.stride * stride
            maps = self.pairs(x.stride, s_out, kernel)
        y = np.zeros((len(self.level(s_out)), c_out))
        for k, p in enumerate(maps):
            np.add.at(y, p[:, 1], x.value[p[:, 0]] @ w[k])
        if bias:
            y += self.param(name + "/bias", c_out)

        def back(g):
            dw = np.zeros_like(w)
            for k, p in enumerate(maps):
                dw[k] = x.value[p[:, 0]].T @ g[p[:, 1]]
                np.add.at(x.grad, p[:, 0], g[p[:, 1]] @ w[k].T)
            self.add_grad(name + "/weight", dw.reshape(stored.shape))
            if bias:
                self.add_grad(name + "/bias", g.sum(0))

        return self.emit(y, s_out, back)

    def norm(self, name, x):
        n, c = x.value.shape
        gamma, beta = self.param(name + "/weight", c), self.param(name + "/bias", c)
        mean, var = x.value.mean(0), x.value.var(0)
        r = 1 / np.sqrt(var + 1e-5)
        xhat = (x.value - mean) * r
        self.running[name + "/running_mean"] = 0.1 * mean
        self.running[name + "/running_var"] = 0.9 + 0.1 * var * n / (n - 1)

        def back(g):
            self.add_grad(name + "/weight", (g * xhat).sum(0))
            self.add_grad(name + "/bias", g.sum(0))
            x.grad += gamma * r * (g - g.mean(0) - xhat * (g * xhat).mean(0))

        return self.emit(gamma * xhat + beta, x.stride, back)

    def relu(self, x):
        def back(g):
            x.grad += g * (x.value > 0)

        return self.emit(np.maximum(x.value, 0), x.stride, back)

    def add(self, a, b):
        def back(g):
            a.grad += g
            b.grad += g

        return self.emit(a.value + b.value, a.stride, back)

    def concat(self, a, b):
        c = a.value.shape[1]

        def back(g):
            a.grad += g[:, :c]
            b.grad += g[:, c:]

        return self.emit(np.hstack([a.value, b.value]), a.stride, back)

    def unit(self, name, bn, x, c, **how):
        return self.relu(self.norm(bn, self.conv(name, x, c, **how)))

    def block(self, name, x, c):
        y = self.unit(name + ".conv1", name + ".norm1", x, c)
        y = self.norm(name + ".norm2", self.conv(name + ".conv2", y, c))
        if x.value.shape[1] != c:
            x = self.norm(name + ".downsample.1", self.conv(name + ".downsample.0", x, c, kernel=1))
        return self.relu(self.add(y, x))

    def dummy(self, x):
        x = self.unit("conv1", "bn1", x, 32)
        x = self.unit("conv2", "bn2", x, 64, stride=2)
        x = self.unit("convtr3", "bn3", x, 32, stride=2, transpose=True)
        return self.conv("conv4", x, self.classes, kernel=1, bias=True)

    def minkunet18(self, x):
        planes = [int(c * self.width) for c in (32, 64, 128, 256, 256, 128, 96, 96)]
        x = self.unit("conv0p1s1", "bn0", x, planes[0], kernel=self.stem)
        skips = []
        for i in range(4):
            skips.append(x)
            x = self.unit(f"conv{i + 1}p{2**i}s2", f"bn{i + 1}", x, x.value.shape[1], kernel=2, stride=2)
            for b in range(2):
                x = self.block(f"block{i + 1}.{b}", x, planes[i])
        for i in range(4):
            c = planes[4 + i]
            p = 2 ** (4 - i)
            x = self.unit(f"convtr{4 + i}p{p}s2", f"bntr{4 + i}", x, c, kernel=2, stride=2, transpose=True)
            x = self.concat(x, skips.pop())
            for b in range(2):
                x = self.block(f"block{5 + i}.{b}", x, c)
        return self.conv("final", x, self.classes, kernel=1, bias=True)

    def run(self):
        x = Tensor(self.features, 1)
        logits = getattr(self, self.family)(x)
        z = logits.value - logits.value.max(1, keepdims=True)
        p = np.exp(z)
        p /= p.sum(1, keepdims=True)
        rows = np.flatnonzero(self.labels != self.ignore)
        loss = -np.log(p[rows, self.labels[rows]]).mean()
        grad = np.zeros_like(p)
        grad[rows] = p[rows]
        grad[rows, self.labels[rows]] -= 1
        logits.grad += grad / len(rows)
        for t in reversed(self.tape):
            t.back(t.grad)
        return loss


def write(net, path):
    """Random weights of the shapes that the network asks for, with no pair in any map."""
    net.rng = np.random.default_rng(7)
    net.pairs = lambda s_in, s_out, kernel: [np.zeros((0, 2), np.int64)] * kernel**3
    getattr(net, net.family)(Tensor(net.features, 1))
    with h5py.File(path, "w") as f:
        for name, value in net.params.items():
            f["params/" + name] = value.astype("f4")
        for name, value in net.running.items():
            f["buffers/" + name] = np.full(len(value), name.endswith("var"), "f4")


def difference(name, ours, theirs, tolerance):
    scale = max(np.abs(theirs).max(), 1e-12)
    error = np.abs(ours - theirs).max() / scale
    if error > tolerance:
        print(f"{name}: largest difference {error:.3g} of the largest value, allowed {tolerance:g}")
    return error


def compare(net, loss, checkpoint, metrics):
    with open(metrics) as f:
        steps = [json.loads(line) for line in f]
    got = next(s for s in steps if s["event"] == "step")["loss"]
    errors = {"loss": difference("loss", np.array(got), np.array(loss), 1e-5)}
    with h5py.File(checkpoint) as f:
        for name, grad in net.grads.items():
            errors[name] = difference("gradient of " + name, f["optim/m/" + name][:], grad, 1e-4)
        for name, value in net.running.items():
            errors[name] = difference(name, f["buffers/" + name][:], value, 1e-5)
    worst = max(errors, key=errors.get)
    print(f"loss {got:.9g}, reference {loss:.9g}; {len(errors)} values, worst {worst} {errors[worst]:.3g}")
    bad = [n for n, e in errors.items() if e > (1e-5 if n == "loss" or "running" in n else 1e-4)]
    return not bad


def main():
    what, shard, family, stem, width, weights = sys.argv[1:7]
    params = {}
    if what == "compare":
        with h5py.File(weights) as f:
            f["params"].visititems(
                lambda n, d: params.__setitem__(n, d[:].astype(np.float64)) if isinstance(d, h5py.Dataset) else None)
    net = Net(shard, params, family, int(stem), float(width))
    if what == "write":
        write(net, weights)
    else:
        loss = net.run()
        runs = sys.argv[7:]
        good = [compare(net, loss, run + "/checkpoints/step-000000001.h5", run + "/metrics.jsonl") for run in runs]
        sys.exit(0 if runs and all(good) else 1)


main()
