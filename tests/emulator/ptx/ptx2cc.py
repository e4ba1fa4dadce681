#!/usr/bin/env python3
"""ptx2cc.py FILE.ptx > FILE.cc: kernels in PTX as C++ for the emulator (ptx.h).

A register becomes a variable, an instruction a statement, a branch a goto. So what runs is
what the real compiler made of the source, inline PTX and library code included. An
instruction that is not known ends the translation.

A kernel is cut at labels into parts, each a function, since a compiler's time grows faster
than a function's length and kernels have up to 28,000 instructions. A part returns the
place where the kernel goes on. Registers that are written and read between two labels
are variables of their part, all others are members of a structure that the parts share.
"""
import math
import re
import sys

sys.dont_write_bytecode = True  # the source folder stays as it is
from ptx_kernel import C_TYPE, Kernel, Unknown, bits, identifier, split

PART = 300  # instructions of a part, at least


class Module:
    """A file: what stands outside of kernels, and the kernels."""

    def __init__(self, path):
        self.path = path
        with open(path) as file:
            text = re.sub(r'/\*.*?\*/|//[^\n]*', '', file.read(), flags=re.S)
        self.text = text
        self.shared = {}  # name: expression of its address
        self.sizes = []
        self.constants = {}
        self.files = {m[1]: m[2] for m in re.finditer(
            r'^\s*\.file\s+(\d+)\s+"[^"]*?([^/"]+)"', text, re.M)}
        self.find_shared()
        self.find_constants()

    def find_shared(self):
        for m in re.finditer(r'(\.extern )?\.shared\s+\.align\s+(\d+)\s+\.(\w+)\s+([\w$]+)'
                             r'(?:\[(\d*)\])?\s*;', self.text):
            if m[1]:
                self.shared[m[4]] = 'hc_launch_shared(1024)'
                continue
            size = bits(m[3]) // 8 * int(m[5] or 1)
            self.sizes.append(m[4])
            self.shared[m[4]] = (f'hc_shared(&key_{identifier(m[4])}, {size}, '
                                 f'{max(int(m[2]), 16)})')

    def find_constants(self):
        for m in re.finditer(r'^\.(?:visible |weak )*\.?(?:global|const)\s+(?:\.align \d+ )?'
                             r'\.(\w+) ([\w$]+)(?:\[(\d*)\])?(?:\s*=\s*\{?([^;}]*)\}?)?;',
                             self.text, re.M):
            self.constants[m[2]] = (C_TYPE[m[1]], m[3] or '1', m[4] or '')

    def kernels(self):
        """Kernel, the most threads of its blocks (.maxntid; 0: any), first line, body."""
        for m in re.finditer(r'\.entry\s+([\w$]+)\s*\((.*?)\)([^{]*)\{', self.text, re.S):
            depth, end = 1, m.end()
            while depth:
                depth += {'{': 1, '}': -1}.get(self.text[end], 0)
                end += 1
            most = re.search(r'\.maxntid\s+([\d\s,]+)', m[3])
            yield (Kernel(m[1], m[2], self),
                   math.prod(map(int, most[1].split(','))) if most else 0,
                   self.text[:m.end()].count('\n') + 1, self.text[m.end():end - 1])


def statements(body, line):
    """Line and text of each statement, label, brace and .loc."""
    text = ''
    for token in re.split(r'(;|\n)', body):
        if token not in (';', '\n'):
            text += token
        while True:  # what stands before a statement
            m = re.match(r'\s*([\w$]+:(?!:)|[{}])', text)
            if not m:
                break
            yield line, m[1]
            text = text[m.end():]
        if token == '\n':
            line += 1
            if re.match(r'\s*\.loc\s', text):
                yield line, text.strip()
                text = ''
            text += ' '
        elif token == ';':
            yield line, text.strip()
            text = ''


class Region:
    """The statements from a label to the next one."""

    def __init__(self, label):
        self.label = label
        self.part = 0
        self.items = []  # (line, text)

    def instructions(self):
        return [text for _, text in self.items if text[0] not in '.{}' and text[-1] != ':']


def regions_of(kernel, line, body):
    """The kernel's regions, and declarations of the structure's arrays."""
    regions, arrays, depth = [Region(None)], [], 0
    for line, text in filter(lambda item: item[1], statements(body, line)):
        depth += {'{': 1, '}': -1}.get(text, 0)
        if depth == 0 and text.endswith(':'):
            regions.append(Region(text[:-1]))
        elif depth == 0 and text.startswith('.reg'):
            kernel.note_registers(text)
        elif depth == 0 and text.startswith('.') and not re.match(r'\.loc\s', text):
            arrays += kernel.note_array(text)
        else:
            regions[-1].items.append((line, text))
    return regions, arrays


def is_set_first(name, text):
    """Whether the instruction writes this register, whatever is in it."""
    m = re.match(r'([\w.:]+)\s*(.*)$', text, re.S)
    if not m or m[1].split('.')[0] in ('st', 'red', 'cp', 'wgmma', 'mbarrier'):
        return False
    registers = [re.findall(r'%\w+', arg) for arg in split(m[2])]
    return name in registers[0] and not any(name in r for r in registers[1:])


def share_registers(kernel, regions):
    """Finds the registers whose values outlive a region; gives the others with theirs."""
    seen = {}  # register: its only region, None where it outlives that
    for region in regions:
        for text in region.instructions():
            for name in set(re.findall(r'%\w+', text)) & kernel.kind.keys():
                if name not in seen:
                    seen[name] = region if is_set_first(name, text) else None
                elif seen[name] is not region:
                    seen[name] = None
    kernel.shared_registers = {name for name, region in seen.items() if not region}
    return [(name, region) for name, region in seen.items() if region]


def cut(kernel, regions):
    """Parts: lists of regions; and the labels at which each is entered, its first one first."""
    parts, length = [[]], 0
    for region in regions:
        if length >= PART:
            parts.append([])
            length = 0
        parts[-1].append(region)
        region.part = len(parts) - 1
        length += len(region.instructions())
    kernel.part_of = {region.label: region.part for region in regions}
    entries = [[part[0].label] for part in parts]
    for k, part in enumerate(parts):
        for region in part:
            for text in region.instructions():
                m = re.search(r'\bbra(?:\.uni)?\s+([\w$]+)$', text)
                if m and kernel.part_of[m[1]] != k:
                    entry = entries[kernel.part_of[m[1]]]
                    if m[1] not in entry:
                        entry.append(m[1])
    kernel.entry_of = {label: i for entry in entries for i, label in enumerate(entry)}
    return parts, entries


def declarations(kernel, names):
    """One declaration for each type."""
    kinds = {}
    for name in names:
        kinds.setdefault(C_TYPE[kernel.kind[name]], []).append('R_' + identifier(name))
    return [f'{kind} {", ".join(sorted(group))};' for kind, group in sorted(kinds.items())]


def translate(kernel, region, out):
    if region.label:
        out.append(f'L_{identifier(region.label)}:;')
    for line, text in region.items:
        if text in '{}':
            out.append(text)
        elif text.endswith(':'):
            sys.exit(f'{kernel.module.path}:{line}: a label in a scope: {text}')
        elif re.match(r'\.loc\s', text):
            m = re.match(r'\.loc\s+(\d+)\s+(\d+)', text)
            kernel.where = (kernel.module.files.get(m[1], '?'), int(m[2]))
        elif text.startswith('.reg'):
            out.append(kernel.declare(text))
        elif not text.startswith('.'):
            try:
                out.append(kernel.statement(text))
            except (Unknown, KeyError, IndexError, StopIteration) as error:
                sys.exit(f'{kernel.module.path}:{line}: not translated: {text} ({error!r})')


def translate_kernel(n, kernel, line, body, out):
    regions, arrays = regions_of(kernel, line, body)
    own = share_registers(kernel, regions)
    parts, entries = cut(kernel, regions)
    out.append(f'struct registers{n} {{')
    out += declarations(kernel, kernel.shared_registers) + arrays
    out.append('};')
    for k, part in enumerate(parts):
        kernel.part = k
        out.append(f'static int part{n}_{k}(registers{n} *const S, const char *const P, int at)\n{{')
        out += declarations(kernel, [name for name, region in own if region.part == k])
        out.append('switch (at) {')
        out += [f'case {i}: goto L_{identifier(label)};'
                for i, label in enumerate(entries[k]) if i > 0]
        out.append('}')
        for region in part:
            translate(kernel, region, out)
        out.append(f'return {k + 1 << 16};' if k + 1 < len(parts) else 'return -1;')
        out.append('}')
    out.append(f'static void kernel{n}(const char *P)\n{{')
    out.append(f'static int (*const part[])(registers{n} *, const char *, int) = {{'
               + ', '.join(f'part{n}_{k}' for k in range(len(parts))) + '};')
    out.append(f'registers{n} S;')
    out.append('for (int at = 0; at >= 0;)\nat = part[at >> 16](&S, P, at & 0xffff);\n}')


def main():
    module = Module(sys.argv[1])
    print('#include "emulator/ptx/ptx.h"')
    for name in module.sizes:
        print(f'static char key_{identifier(name)};')
    for name, (kind, count, values) in module.constants.items():
        print(f'static {kind} {identifier(name)}[{count}] __attribute__((aligned(16), unused))'
              f' = {{{values}}};')
    for n, (kernel, most, line, body) in enumerate(module.kernels()):
        out = []
        translate_kernel(n, kernel, line, body, out)
        print('\n'.join(out))
        print(f'static const ptx_parameter parameter{n}[] = {{'
              + ', '.join(f'{{{at}, {size}}}' for at, size in kernel.parameters) + '};')
        print(f'static const ptx_kernel entry{n} = {{"{kernel.name}", kernel{n}, '
              f'{kernel.bytes}, {len(kernel.parameters)}, parameter{n}, {most}}};')
        print(f'__attribute__((constructor(101))) static void register{n}() '
              f'{{ ptx_register(&entry{n}); }}')


main()
