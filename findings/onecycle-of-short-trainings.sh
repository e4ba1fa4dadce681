#!/bin/sh
# PyTorch's OneCycleLR divides by zero if pct_start times total_steps is 1: its rise then begins
# and ends at step 0, and 0 / 0 raises ZeroDivisionError in the constructor. Five steps with
# pct_start = 0.2 do so, and 10 with 0.1. With fewer steps the fall begins before step 0, so that
# no step has max_lr. Takes lr_scheduler.py as it is out of the smallest wheel, for macOS, and runs
# it on an optimizer of a dozen lines, since all of torch is some gigabytes.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if ! { python3 -m venv "$work/venv" &&
    "$work/venv/bin/pip" install -q typing_extensions==4.16.0 &&
    "$work/venv/bin/pip" download -q --no-deps --only-binary :all: --platform macosx_14_0_arm64 \
        --python-version 311 -d "$work" torch==2.15.0; }; then
    echo "cannot be installed here"
    exit 77
fi
echo "torch==2.15.0"
"$work/venv/bin/python" - "$work"/torch-2.15.0-*.whl >"$work/out" <<'PYTHON'
import math, sys, types, zipfile


class Optimizer:
    def __init__(self):
        self.defaults = {"momentum": 0.9}
        self.param_groups = [{"lr": 0.1, "momentum": 0.9}]

    def step(self):
        pass


for name in ("torch", "torch.optim", "torch.optim.optimizer"):
    sys.modules[name] = types.ModuleType(name)
sys.modules["torch"].inf, sys.modules["torch"].Tensor = math.inf, type("Tensor", (), {})
sys.modules["torch.optim.optimizer"].Optimizer = Optimizer
sys.modules["torch.optim.optimizer"]._to_scalar = lambda x: x
schedules = types.ModuleType("torch.optim.lr_scheduler")
schedules.__package__ = "torch.optim"
with zipfile.ZipFile(sys.argv[1]) as wheel:
    exec(wheel.read("torch/optim/lr_scheduler.py"), schedules.__dict__)


def rates(total_steps, pct_start):
    optimizer = Optimizer()
    try:
        schedule = schedules.OneCycleLR(optimizer, 1.0, total_steps=total_steps,
                                        pct_start=pct_start)
    except ZeroDivisionError:
        return "ZeroDivisionError"
    result = schedule.get_last_lr()
    for _ in range(total_steps - 1):
        optimizer.step()
        schedule.step()
        result = result + schedule.get_last_lr()
    return " ".join("%.4f" % x for x in result)


for total_steps, pct_start in ((5, 0.2), (10, 0.1), (6, 0.2), (4, 0.2), (1, 0.2)):
    print(total_steps, pct_start, rates(total_steps, pct_start))
PYTHON
cat "$work/out"
cat >"$work/seen" <<'SEEN'
5 0.2 ZeroDivisionError
10 0.1 ZeroDivisionError
SEEN
head -n 2 "$work/out" | cmp -s - "$work/seen"
