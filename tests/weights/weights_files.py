"""Files of weights as other programs write them, with Python's own library only.

    weights_files.py write OURS.safetensors LAYOUT NAMES CONTAINER OUT
    weights_files.py same A.safetensors B.safetensors
    weights_files.py shapes X.safetensors spunet|spvnas|spvnas-cr WIDTH

OURS is what `sptrain weights export` writes in its own layout and names. The layouts and
names below are written down a second time, from the programs' sources, so that a mistake in
the C code and one here would have to agree.
"""
import array
import io
import json
import pickle
import re
import struct
import sys
import types
import zipfile


def read_safetensors(path):
    """name -> (shape, array of float32)"""
    with open(path, "rb") as file:
        data = file.read()
    (n,) = struct.unpack_from("<Q", data)
    head = json.loads(data[8 : 8 + n])
    head.pop("__metadata__", None)
    tensors = {}
    for name, t in head.items():
        assert t["dtype"] == "F32", name
        begin, end = t["data_offsets"]
        numbers = array.array("f")
        numbers.frombytes(data[8 + n + begin : 8 + n + end])
        tensors[name] = (t["shape"], numbers)
    return tensors


def write_safetensors(path, tensors):
    head, data = {"__metadata__": {"format": "pt"}}, b""
    for name, (shape, numbers) in tensors.items():
        begin = len(data)
        data += numbers.tobytes()
        head[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, len(data)]}
    text = json.dumps(head).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def averaged(tensors):
    """The tensors as two sets: an average, which is all zeros, and the weights."""
    zeros = {"ema." + k: (s, array.array("f", bytes(4 * len(n)))) for k, (s, n) in tensors.items()}
    return zeros | {"semantic-model." + k: t for k, t in tensors.items()}


# ---- layouts ----


def is_kernel(name, shape):
    return name.endswith(".weight") and len(shape) >= 2


def kernel_to(layout, shape, w):
    """A kernel [K, c_in, c_out] of ours, x fastest, in another layout."""
    k = shape[0] if len(shape) == 3 else 1
    c_in, c_out = shape[-2:]
    n = round(k ** (1 / 3))

    def ours(x, y, z, i, o):
        return w[((x + n * (y + n * z)) * c_in + i) * c_out + o]

    r, ins, outs = range(n), range(c_in), range(c_out)
    if layout.startswith("spconv2") and n == 1:  # this shape, but read as [c_in, c_out]
        return [c_out, n, n, n, c_in], list(w)
    if layout == "spconv2":  # [c_out, x, y, z, c_in]
        return [c_out, n, n, n, c_in], [
            ours(x, y, z, i, o) for o in outs for x in r for y in r for z in r for i in ins
        ]
    if layout == "spconv2-zyx":  # [c_out, z, y, x, c_in]
        return [c_out, n, n, n, c_in], [
            ours(x, y, z, i, o) for o in outs for z in r for y in r for x in r for i in ins
        ]
    if layout == "spconv1":  # [x, y, z, c_in, c_out]
        return [n, n, n, c_in, c_out], [
            ours(x, y, z, i, o) for x in r for y in r for z in r for i in ins for o in outs
        ]
    if layout == "torchsparse" and n % 2 == 0:  # z fastest
        return shape, [
            ours(x, y, z, i, o) for x in r for y in r for z in r for i in ins for o in outs
        ]
    return shape, list(w)


def linear(shape, w):
    """torch.nn.Linear: [c_out, c_in]"""
    c_in, c_out = shape
    return [c_out, c_in], [w[i * c_out + o] for o in range(c_out) for i in range(c_in)]


# ---- names ----

BLOCK = {  # parts of a residual block of mmdet3d, by backend
    "torchsparse": {},
    "spconv2": {"net.0": "conv1", "net.1": "bn1", "net.3": "conv2", "net.4": "bn2"},
    "minkowski": {"net.0": "conv1", "net.1": "norm1", "net.3": "conv2", "net.4": "norm2"},
}


def mmdet3d_layer(layer, backend):
    net = "" if backend == "spconv2" else "net."
    if layer == "classifier.0":
        return "decode_head.conv_seg"
    m = re.fullmatch(r"stem\.(\d)", layer)
    if m:
        number = int(m[1])
        return f"backbone.conv_input.{number // 3}.{net}{number % 3}"
    m = re.fullmatch(r"(stage|up)(\d)\.0\.net\.(\d)", layer)
    if m:
        side = "encoder" if m[1] == "stage" else "decoder"
        return f"backbone.{side}.{int(m[2]) - 1}.0.{net}{m[3]}"
    m = re.fullmatch(r"(stage(\d)|up(\d)\.1)\.(\d)\.((net|downsample)\.(\d))", layer)
    at = f"encoder.{int(m[2]) - 1}" if m[2] else f"decoder.{int(m[3]) - 1}.1"
    part = BLOCK[backend].get(m[5], m[5])
    if backend == "minkowski" and m[6] == "downsample":
        part = "downsample.net." + m[7]
    return f"backbone.{at}.{m[4]}.{part}"


def key_of(names, layout, name, shape):
    layer, leaf = name.rsplit(".", 1)
    kernel = is_kernel(name, shape)
    is_norm = layer_is_norm(layer)
    if names == "me" or names == "pointcept-me":
        prefix = "module.backbone." if names == "pointcept-me" else ""
        return prefix + layer + (".bn." if is_norm else ".") + ("kernel" if kernel else leaf)
    if names == "pointcept":
        return "module." + name
    if names == "spvnas":
        return name if layer == "classifier.0" else f"{layer}.{'kernel' if kernel else leaf}"
    if names == "mmdet3d":
        at = mmdet3d_layer(layer, layout)
        if layer == "classifier.0" or layout == "spconv2":
            return f"{at}.{leaf}"
        norm = ".bn" if layout == "minkowski" and is_norm else ""
        return f"{at}{norm}.{'kernel' if kernel else leaf}"
    return name


NORMS = set()


def layer_is_norm(layer):
    return layer in NORMS


def convert(tensors, layout, names):
    NORMS.update(n[: -len(".running_mean")] for n in tensors if n.endswith(".running_mean"))
    out = {}
    for name, (shape, w) in tensors.items():
        key = key_of(names, layout, name, shape)
        if is_kernel(name, shape):
            if name == "classifier.0.weight":
                shape, w = linear(shape, w)
            else:
                shape, w = kernel_to(layout, shape, w)
        elif name.endswith(".bias") and layer_is_norm(name[:-5]) is False and layout == "minkowski":
            shape = [1] + shape
        out[key] = (shape, array.array("f", w))
    return out


# ---- PyTorch's files, without PyTorch ----


class Storage:
    def __init__(self, numbers, key, is_strange):
        self.numbers, self.key, self.is_strange = numbers, key, is_strange


class Tensor:
    def __init__(self, shape, numbers, key, is_strange=False):
        # One number for all elements, as torch.ones(1).expand(n) has it.
        self.is_expanded = len(numbers) > 1 and min(numbers) == max(numbers)
        numbers = numbers[:1] if self.is_expanded else numbers
        self.shape, self.storage = shape, Storage(numbers, key, is_strange)


def fake_modules():
    """Modules whose names are written into the file; nothing of them is called."""
    for name in ("torch", "torch._utils", "numpy", "numpy.core.multiarray", "os_alike"):
        sys.modules[name] = types.ModuleType(name)

    def add(module, name, kind):
        kind.__module__, kind.__qualname__, kind.__name__ = module, name, name
        setattr(sys.modules[module], name, kind)
        return kind

    for name in ("FloatStorage", "StrangeStorage"):
        add("torch", name, type(name, (), {}))
    add("torch._utils", "_rebuild_tensor_v2", lambda *a: None)
    add("numpy.core.multiarray", "scalar", lambda *a: None)
    add("os_alike", "touch", lambda *a: None)


class Pickler(pickle.Pickler):
    def __init__(self, file, protocol, storages, is_old):
        super().__init__(file, protocol)
        self.storages, self.is_old = storages, is_old

    def persistent_id(self, obj):
        if not isinstance(obj, Storage):
            return None
        self.storages[obj.key] = obj.numbers
        kind = "StrangeStorage" if obj.is_strange else "FloatStorage"
        id = ("storage", getattr(sys.modules["torch"], kind), obj.key, "cpu", len(obj.numbers))
        return id + (None,) if self.is_old else id

    def reducer_override(self, obj):
        if isinstance(obj, Tensor):
            stride, at = [], 1
            for n in reversed(obj.shape):
                stride.insert(0, 0 if obj.is_expanded else at)
                at *= n
            args = (obj.storage, 0, tuple(obj.shape), tuple(stride), False, {})
            return sys.modules["torch._utils"]._rebuild_tensor_v2, args
        if isinstance(obj, Call):
            return obj.function, obj.args
        return NotImplemented


class Call:
    """An object whose pickle calls a function when Python reads it."""

    def __init__(self, function, *args):
        self.function, self.args = function, args


class Scheduler:
    def __init__(self):
        self.base_lrs, self.last_epoch = [0.05], 7


def tree_of(tensors):
    """What Pointcept writes: weights, optimizer, scheduler, numpy scalars; and a call."""
    state = {k: Tensor(s, n, str(i)) for i, (k, (s, n)) in enumerate(tensors.items())}
    momentum = Tensor([3], array.array("f", [1, 2, 3]), "9999")
    scalar = Call(sys.modules["numpy.core.multiarray"].scalar, "f8", b"\0" * 8)
    return {
        "epoch": 3,
        "state_dict": state,
        "optimizer": {"state": {0: {"momentum_buffer": momentum}}, "param_groups": []},
        "scheduler": Scheduler(),
        "scaler": None,
        "best_metric_value": scalar,
        "note": Call(sys.modules["os_alike"].touch, "was-run"),
        "numbers": [1.5, 1 << 70, True, {"a"}, (1, 2, 3, 4)],
    }


def write_zip(path, tensors, protocol, more={}):
    storages, text = {}, io.BytesIO()
    Pickler(text, protocol, storages, False).dump(tree_of(tensors) | more)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as z:
        z.writestr("archive/data.pkl", text.getvalue())
        z.writestr("archive/.format_version", "1")
        z.writestr("archive/.storage_alignment", "64")
        z.writestr("archive/byteorder", "little")
        for key, numbers in storages.items():
            z.writestr(f"archive/data/{key}", numbers.tobytes())
        z.writestr("archive/version", "3\n")


def write_old(path, tensors, protocol):
    storages, text = {}, io.BytesIO()
    pickle.dump(0x1950A86A20F9469CFC6C, text, protocol)
    pickle.dump(1001, text, protocol)
    pickle.dump({"little_endian": True, "type_sizes": {"int": 4}}, text, protocol)
    Pickler(text, protocol, storages, True).dump(tree_of(tensors))
    pickle.dump(sorted(storages), text, protocol)
    for key in sorted(storages):
        text.write(struct.pack("<q", len(storages[key])) + storages[key].tobytes())
    with open(path, "wb") as file:
        file.write(text.getvalue())


# ---- networks: names and shapes as their programs make them ----


def conv(shapes, name, kernel, c_in, c_out):
    shapes[name + ".weight"] = [c_out, kernel, kernel, kernel, c_in]


def norm(shapes, name, c):
    for leaf in ("weight", "bias", "running_mean", "running_var"):
        shapes[f"{name}.{leaf}"] = [c]


def spunet_shapes(c_in, n_classes, width):
    """SpUNetBase of Pointcept's spconv_unet_v1m1_base.py"""
    shapes = {}
    base, *planes = (max(1, int(n * width + 0.5)) for n in (32, 32, 64, 128, 256, 256, 128, 96, 96))

    def unit(name, kernel, a, b):
        conv(shapes, name + ".0", kernel, a, b)
        norm(shapes, name + ".1", b)

    def block(name, a, b):
        conv(shapes, name + ".conv1", 3, a, b)
        norm(shapes, name + ".bn1", b)
        conv(shapes, name + ".conv2", 3, b, b)
        norm(shapes, name + ".bn2", b)
        if a != b:
            unit(name + ".proj", 1, a, b)

    layers = (2, 3, 4, 6, 2, 2, 2, 2)
    unit("conv_input", 5, c_in, base)
    enc, dec = base, planes[-1]
    for s in range(4):
        unit(f"down.{s}", 2, enc, planes[s])
        for i in range(layers[s]):
            block(f"enc.{s}.block{i}", planes[s], planes[s])
        unit(f"up.{s}", 2, planes[6 - s], dec)
        for i in range(layers[7 - s]):
            block(f"dec.{s}.block{i}", dec if i else dec + enc, dec)
        enc, dec = planes[s], planes[6 - s]
    conv(shapes, "final", 1, planes[-1], n_classes)
    shapes["final.bias"] = [n_classes]
    return shapes


def spvnas_shapes(c_in, n_classes, width, half=0.5):
    """MinkUNet of spvnas's core/models/semantic_kitti/minkunet.py; its cr rounds down, with half = 0"""
    shapes = {}
    cs = [max(1, int(n * width + half)) for n in (32, 32, 64, 128, 256, 256, 128, 96, 96)]

    def unit(conv_name, norm_name, kernel, a, b):
        shapes[conv_name + ".kernel"] = [kernel**3, a, b] if kernel > 1 else [a, b]
        norm(shapes, norm_name, b)

    def block(name, a, b):
        unit(name + ".net.0", name + ".net.1", 3, a, b)
        unit(name + ".net.3", name + ".net.4", 3, b, b)
        if a != b:
            unit(name + ".downsample.0", name + ".downsample.1", 1, a, b)

    unit("stem.0", "stem.1", 3, c_in, cs[0])
    unit("stem.3", "stem.4", 3, cs[0], cs[0])
    for s in range(1, 5):
        unit(f"stage{s}.0.net.0", f"stage{s}.0.net.1", 2, cs[s - 1], cs[s - 1])
        block(f"stage{s}.1", cs[s - 1], cs[s])
        block(f"stage{s}.2", cs[s], cs[s])
        unit(f"up{s}.0.net.0", f"up{s}.0.net.1", 2, cs[s + 3], cs[s + 4])
        block(f"up{s}.1.0", cs[s + 4] + cs[4 - s], cs[s + 4])
        block(f"up{s}.1.1", cs[s + 4], cs[s + 4])
    shapes["classifier.0.weight"] = [n_classes, cs[8]]
    shapes["classifier.0.bias"] = [n_classes]
    return shapes


def main():
    if sys.argv[1] == "shapes":
        found = {name: t[0] for name, t in read_safetensors(sys.argv[2]).items()}
        if sys.argv[3] == "spvnas-cr":
            right = spvnas_shapes(3, 5, float(sys.argv[4]), half=0)
        else:
            right = (spunet_shapes if sys.argv[3] == "spunet" else spvnas_shapes)(3, 5, float(sys.argv[4]))
        assert found.keys() == right.keys(), found.keys() ^ right.keys()
        wrong = [name for name in right if found[name] != right[name]]
        assert not wrong, [(name, found[name], right[name]) for name in wrong]
        return
    if sys.argv[1] == "same":
        a, b = (read_safetensors(path) for path in sys.argv[2:4])
        assert a.keys() == b.keys(), a.keys() ^ b.keys()
        for name in a:
            assert a[name][0] == b[name][0], name
            assert a[name][1].tobytes() == b[name][1].tobytes(), name
        return
    ours, layout, names, container, out = sys.argv[2:]
    tensors = convert(read_safetensors(ours), layout, names)
    fake_modules()
    if container == "safetensors":
        write_safetensors(out, tensors)
    elif container == "averaged":
        write_safetensors(out, averaged(tensors))
    elif container == "strange":
        write_zip(out, tensors, 2, {"strange": Tensor([3], array.array("f", [0] * 3), "s", True)})
    elif container.startswith("old"):
        write_old(out, tensors, int(container[3:]))
    else:
        write_zip(out, tensors, int(container[3:]))


main()
