"""Kernels in PTX: each instruction as a statement of C++, whose functions ptx.h has."""
import re

C_TYPE = {
    'u8': 'uint8_t', 's8': 'int8_t', 'b8': 'uint8_t',
    'u16': 'uint16_t', 's16': 'int16_t', 'b16': 'uint16_t',
    'u32': 'uint32_t', 's32': 'int32_t', 'b32': 'uint32_t',
    'u64': 'uint64_t', 's64': 'int64_t', 'b64': 'uint64_t',
    'f32': 'float', 'f64': 'double', 'pred': 'bool',
}
SPECIAL = {
    '%globaltimer': 'sp_clock_ns()',
    '%cluster_ctarank': 'sp_cluster_rank()',
    '%laneid': '(uint32_t)hc_self->lane',
    '%lanemask_le': '(~0u >> (31 - hc_self->lane))',
}
for axis in 'xyz':
    SPECIAL['%tid.' + axis] = 'threadIdx.' + axis
    SPECIAL['%ntid.' + axis] = 'blockDim.' + axis
    SPECIAL['%ctaid.' + axis] = 'blockIdx.' + axis
    SPECIAL['%nctaid.' + axis] = 'gridDim.' + axis

COMPARE = {'eq': '==', 'ne': '!=', 'lt': '<', 'le': '<=', 'gt': '>', 'ge': '>=',
           'lo': '<', 'ls': '<=', 'hi': '>', 'hs': '>='}
# true where an operand is NaN: the opposite ordered comparison is false then
UNORDERED = {'neu': '==', 'ltu': '>=', 'leu': '>', 'gtu': '<=', 'geu': '<'}
BINARY = {'add': '+', 'sub': '-', 'and': '&', 'or': '|', 'xor': '^'}
WIDER = {'u16': 'u32', 's16': 's32', 'u32': 'u64', 's32': 's64'}


class Unknown(Exception):
    """An instruction, or a form of it, that is not translated."""


def bits(kind):
    return 1 if kind == 'pred' else int(kind[1:])


def unsigned(kind):
    """Arithmetic that wraps is done without sign."""
    return 'u' + kind[1:] if kind[0] in 'sb' else kind


def split(text):
    """At the commas that stand in no bracket."""
    parts, depth, begin = [], 0, 0
    for i, char in enumerate(text + ','):
        if char in '{[(':
            depth += 1
        elif char in '}])':
            depth -= 1
        elif char == ',' and depth == 0:
            parts.append(text[begin:i].strip())
            begin = i + 1
    return [p for p in parts if p]


def identifier(name):
    return re.sub(r'\W', '_', name)


class Kernel:
    """One .entry: its names, and a statement of C++ for each instruction."""

    def __init__(self, name, parameters, module):
        self.name = name
        self.module = module
        self.kind = {}  # of each register, by its declaration
        self.shared_registers = set()  # members of the structure
        self.part_of = {}  # label: number of its part
        self.entry_of = {}  # label: its number among the entries of its part
        self.part = 0  # the one that is being written
        self.offset = {}  # of parameters
        self.parameters = []
        self.bytes = 0
        self.arrays = set()  # .local
        self.where = (module.path, 0)
        for text in split(parameters):
            self.add_parameter(text)

    def add_parameter(self, text):
        m = re.match(r'\.param\s+(?:\.align\s+(\d+)\s+)?\.(\w+)\s+(?:\.ptr.*?)?'
                     r'([\w$]+)(?:\[(\d+)\])?$', text)
        size = bits(m[2]) // 8
        align = int(m[1] or size)
        self.bytes = (self.bytes + align - 1) // align * align
        self.offset[m[3]] = self.bytes
        self.parameters.append((self.bytes, size * int(m[4] or 1)))
        self.bytes += size * int(m[4] or 1)

    # ---- operands ----

    def register(self, name):
        return ('S->' if name in self.shared_registers else '') + 'R_' + identifier(name)

    @staticmethod
    def converted(text, source, to):
        """Bits of one type as another: registers have no type, instructions have."""
        if C_TYPE[source] == C_TYPE[to]:
            return text
        if bits(source) == bits(to) and 'f' in source[0] + to[0]:
            return f'__builtin_bit_cast({C_TYPE[to]}, {text})'
        return f'({C_TYPE[to]})({text})'

    def value(self, operand, kind):
        """An operand, read as this type."""
        if operand.startswith('!'):
            return '!' + self.value(operand[1:], kind)
        if operand in SPECIAL:
            text = SPECIAL[operand]
        elif re.match(r'0[fF][0-9a-fA-F]{8}$', operand):
            return self.converted(f'0x{operand[2:]}u', 'b32', kind)
        elif re.match(r'0[dD][0-9a-fA-F]{16}$', operand):
            return self.converted(f'0x{operand[2:]}ull', 'b64', kind)
        elif re.match(r'-?(0x[0-9a-fA-F]+|\d+)U?$', operand):
            number = int(operand.rstrip('U'), 0) % (1 << 64)
            return f'({C_TYPE[kind]}){number}ull'
        elif operand in self.module.shared:
            text = f'shared_address({self.module.shared[operand]})'
        elif operand in self.offset:
            text = f'(uint64_t)(P + {self.offset[operand]})'
        elif operand in self.arrays:
            text = f'(uint64_t)S->{identifier(operand)}'
        elif operand in self.module.constants:
            text = f'(uint64_t){identifier(operand)}'
        else:
            return self.converted(self.register(operand), self.kind[operand], kind)
        return f'({C_TYPE[kind]})({text})'

    def store(self, register, kind, text):
        if register == '_':
            return f'(void)({text});'
        value = self.converted(f'({C_TYPE[kind]})({text})', kind, self.kind[register])
        return f'{self.register(register)} = {value};'

    def address(self, operand, space):
        m = re.match(r'\[\s*([%\w$.]+)\s*(?:\+\s*(-?\d+))?\s*\]$', operand)
        if space == 'cluster':
            return (f'hc_cluster_at({self.value(m[1], "u32")} + ({m[2] or 0}), '
                    f'{self.site()})')
        if space == 'shared':
            return f'shared({self.value(m[1], "u32")} + ({m[2] or 0}))'
        return f'(char *)({self.value(m[1], "u64")} + ({m[2] or 0}ll))'

    def site(self):
        return f'"{self.where[0]}", {self.where[1]}'

    # ---- instructions ----

    def statement(self, text):
        guard = ''
        m = re.match(r'@(!?)([%\w]+)\s+(.*)$', text, re.S)
        if m:
            guard = f'if ({m[1]}{self.register(m[2])}) '
            text = m[3]
        m = re.match(r'([\w.:]+)\s*(.*)$', text, re.S)
        parts = m[1].replace('::', '.').split('.')
        handler = getattr(self, 'do_' + parts[0], None)
        if not handler:
            raise Unknown(m[1])
        return f'{guard}{{ {handler(parts, split(m[2]))} }}'

    def binary(self, parts, args):
        kind = parts[-1]
        kind = 'u' + kind[1:] if kind[0] in 'sb' else kind
        if kind == 'pred':
            text = f'{self.value(args[1], kind)} {BINARY[parts[0]]} {self.value(args[2], kind)}'
            return self.store(args[0], kind, f'({text}) != 0')
        return self.store(args[0], kind, f'{self.value(args[1], kind)} {BINARY[parts[0]]} '
                                         f'{self.value(args[2], kind)}')

    do_add = do_sub = do_and = do_or = do_xor = binary

    def call(self, function, parts, args, kinds=None):
        """A function of ptx.h over all operands, of the instruction's type if not named."""
        kind = parts[-1]
        kinds = kinds or [kind] * (len(args) - 1)
        values = ', '.join(self.value(a, k) for a, k in zip(args[1:], kinds))
        return self.store(args[0], kind, f'{function}({values})')

    def function(name, *counts):
        """An instruction that is a function of ptx.h. counts: operands of 32 bits, whatever
        its type, behind those of its type."""
        def handler(self, parts, args):
            kinds = [parts[-1]] * (len(args) - 1 - len(counts)) + list(counts)
            return self.call(name, parts, args, kinds)
        return handler

    do_min, do_max, do_fma = function('min_of'), function('max_of'), function('fma_of')
    do_rem, do_prmt, do_brev = function('remainder_of'), function('prmt'), function('brev')
    do_shl, do_shr = function('shl', 'u32'), function('shr', 'u32')
    do_bfi = function('bfi', 'u32', 'u32')
    del function

    def do_div(self, parts, args):
        if parts[-1][0] == 'f':
            return self.store(args[0], parts[-1], f'{self.value(args[1], parts[-1])} / '
                                                  f'{self.value(args[2], parts[-1])}')
        return self.call('divide', parts, args)

    def do_mul(self, parts, args):
        kind = parts[-1]
        if kind[0] == 'f':
            return self.store(args[0], kind,
                              f'{self.value(args[1], kind)} * {self.value(args[2], kind)}')
        return self.store(*self.product(parts, args))

    def product(self, parts, args):
        """Register, type and text of an integer product."""
        kind, form = parts[-1], parts[1]
        if form == 'wide':
            wide = WIDER[kind]
            return args[0], wide, (f'({C_TYPE[wide]}){self.value(args[1], kind)} * '
                                   f'({C_TYPE[wide]}){self.value(args[2], kind)}')
        if form == 'hi':
            wide = ('unsigned ' if kind[0] == 'u' else '') + '__int128'
            return args[0], kind, (f'(({wide}){self.value(args[1], kind)} * '
                                   f'({wide}){self.value(args[2], kind)}) >> {bits(kind)}')
        if form != 'lo':
            raise Unknown('.'.join(parts))
        kind = unsigned(kind)
        return args[0], kind, f'{self.value(args[1], kind)} * {self.value(args[2], kind)}'

    def do_mad(self, parts, args):
        register, kind, text = self.product(parts, args)
        kind = unsigned(kind)
        return self.store(register, kind, f'({C_TYPE[kind]})({text}) + '
                                          f'{self.value(args[3], kind)}')

    def do_neg(self, parts, args):
        kind = unsigned(parts[-1])
        sign = '-' if kind[0] == 'f' else '0 - '
        return self.store(args[0], kind, sign + self.value(args[1], kind))

    def do_abs(self, parts, args):
        kind, v = parts[-1], self.value(args[1], parts[-1])
        if kind[0] == 'f':
            return self.store(args[0], kind, f'fabs({v})')
        return self.store(args[0], kind, f'{v} < 0 ? 0 - {v} : {v}')

    def do_not(self, parts, args):
        kind = parts[-1]
        return self.store(args[0], kind,
                          ('!' if kind == 'pred' else '~') + self.value(args[1], kind))

    def do_popc(self, parts, args):
        return self.store(args[0], 'u32', f'__builtin_popcountll({self.value(args[1], parts[-1])})')

    def do_clz(self, parts, args):
        return self.store(args[0], 'u32', f'clz({self.value(args[1], unsigned(parts[-1]))})')

    def do_bfind(self, parts, args):
        if 'shiftamt' not in parts:
            raise Unknown('.'.join(parts))
        return self.store(args[0], 'u32', f'shift_to_top({self.value(args[1], parts[-1])})')

    def do_selp(self, parts, args):
        kind = parts[-1]
        return self.store(args[0], kind, f'{self.value(args[3], "pred")} ? '
                                         f'{self.value(args[1], kind)} : '
                                         f'{self.value(args[2], kind)}')

    def do_sqrt(self, parts, args):
        return self.call('sqrtf' if parts[-1] == 'f32' else 'sqrt', parts, args)

    def do_rcp(self, parts, args):
        if 'approx' in parts and parts[-1] == 'f64':
            return self.call('rough_reciprocal', parts, args)
        return self.store(args[0], parts[-1], f'1 / {self.value(args[1], parts[-1])}')

    def do_setp(self, parts, args):
        kind, how = parts[-1], parts[1]
        a, b = self.value(args[1], kind), self.value(args[2], kind)
        if how in COMPARE:
            text = f'{a} {COMPARE[how]} {b}'
        elif how in UNORDERED:
            text = f'!({a} {UNORDERED[how]} {b})'
        else:
            raise Unknown('.'.join(parts))
        if len(args) > 3 or '|' in args[0]:
            raise Unknown('.'.join(parts))
        return f'const bool is = {text}; ' + self.store(args[0], 'pred', 'is')

    def do_mov(self, parts, args):
        kind = parts[-1]
        if args[0].startswith('{'):
            regs = split(args[0][1:-1])
            n = bits(kind) // len(regs)
            return f'const {C_TYPE[kind]} v = {self.value(args[1], kind)}; ' + ' '.join(
                self.store(r, f'b{n}', f'v >> {n * i}') for i, r in enumerate(regs))
        if args[1].startswith('{'):
            regs = split(args[1][1:-1])
            n = bits(kind) // len(regs)
            return self.store(args[0], kind, ' | '.join(
                f'({C_TYPE[kind]}){self.value(r, f"b{n}")} << {n * i}'
                for i, r in enumerate(regs)))
        return self.store(args[0], kind, self.value(args[1], kind))

    def do_cvta(self, parts, args):
        kind = parts[-1]
        if 'shared' in parts:
            raise Unknown('.'.join(parts))
        return self.store(args[0], kind, self.value(args[1], kind))

    def do_cvt(self, parts, args):
        to, source = parts[-2], parts[-1]
        if to == 'bf16x2':
            return self.store(args[0], 'b32', f'sp_pack_bf16({self.value(args[2], "f32")}, '
                                              f'{self.value(args[1], "f32")})')
        if to == 'tf32':
            if 'rna' not in parts:
                raise Unknown('.'.join(parts))
            return self.store(args[0], 'b32', f'sp_round_tf32({self.value(args[1], "b32")})')
        if source in ('f32', 'f64') and 'rzi' in parts:
            # Values in the range of the integer, which the kernels' are; PTX saturates others.
            return self.store(args[0], to, f'trunc({self.value(args[1], source)})')
        if source not in C_TYPE or source[0] == 'f' and to not in ('f32', 'f64'):
            raise Unknown('.'.join(parts))
        return self.store(args[0], to, self.value(args[1], source))

    # ---- memory ----

    def do_ld(self, parts, args):
        return self.move(parts, args[0], args[1], False)

    def do_st(self, parts, args):
        return self.move(parts, args[1], args[0], True)

    def move(self, parts, registers, place, is_write):
        kind = parts[-1]
        space = next((s for s in ('cluster', 'shared', 'param', 'global', 'local', 'const')
                      if s in parts), 'generic')
        regs = split(registers[1:-1]) if registers.startswith('{') else [registers]
        c_type = C_TYPE[kind]
        if 'sys' in parts and not is_write:
            yield_first = 'hc_poll(); '
        elif {'volatile', 'relaxed', 'acquire'} & set(parts) and not is_write:
            yield_first = 'hc_maybe_yield(); '
        else:
            yield_first = ''
        text = (f'{yield_first}{c_type} *const q = access<{c_type}>({self.address(place, space)}, '
                f'{len(regs)}, {self.site()}); ')
        if is_write:
            return text + ' '.join(f'q[{i}] = {self.value(r, kind)};'
                                   for i, r in enumerate(regs))
        # As sp_load_pair of the emulator: what a peer has written may arrive with a wrong bit.
        wrong = [' ^ hc_wrong_bits()' if 'sys' in parts and len(regs) == 2 and i == 0 else ''
                 for i in range(len(regs))]
        text += ' '.join(f'const {c_type} v{i} = q[{i}]{wrong[i]};' for i in range(len(regs)))
        return text + ' '.join(self.store(r, kind, f'v{i}') for i, r in enumerate(regs))

    def do_atom(self, parts, args):
        kind = parts[-1]
        space = 'shared' if 'shared' in parts else 'generic'
        place = f'({C_TYPE[kind]} *)({self.address(args[1], space)})'
        if 'add' not in parts:
            raise Unknown('.'.join(parts))
        return (f'hc_maybe_yield(); {C_TYPE[kind]} *const at = {place}; '
                f'const {C_TYPE[kind]} old = __atomic_fetch_add(at, '
                f'{self.value(args[2], kind)}, __ATOMIC_RELAXED); ' + self.store(args[0], kind, 'old'))

    def do_membar(self, parts, args):
        return '__threadfence();'

    def do_fence(self, parts, args):
        if parts[1:3] == ['proxy', 'async']:
            return 'sp_fence_async();'
        if parts[1] == 'mbarrier_init':
            return 'sp_mbarrier_fence();'
        return self.do_membar(parts, args)

    def do_trap(self, parts, args):
        return f'sp_trap({self.site()});'

    def do_griddepcontrol(self, parts, args):
        calls = {'wait': 'sp_grid_wait();', 'launch_dependents': 'hc_grid_let();'}
        if parts[1] not in calls:
            raise Unknown('.'.join(parts))
        return calls[parts[1]]

    def do_cp(self, parts, args):
        if 'commit_group' in parts:
            return 'sp_copy_commit();'
        if 'wait_group' in parts:
            return f'hc_copy_wait({args[0]});'
        if 'bulk' in parts:
            if parts[3:6] != ['shared', 'cluster', 'global'] or 'complete_tx' not in parts:
                raise Unknown('.'.join(parts))
            at = [self.value(a.strip('[] '), k) for a, k in zip(args, ('u32', 'u64', 'u32', 'u32'))]
            ranks = self.value(args[4], 'u16') if 'multicast' in parts else '1u << sp_cluster_rank()'
            return (f'sp_copy_bulk({at[0]}, (const void *)({at[1]}), {at[2]}, {at[3]}, {ranks}, '
                    f'{self.site()});')
        given = self.value(args[3], 's32') if len(args) > 3 else args[2]
        if args[2] != '16' or parts[1] != 'async':
            raise Unknown('.'.join(parts))
        return (f'sp_copy_async({self.address(args[0], "shared")}, '
                f'{self.address(args[1], "global")}, {given}, {self.site()});')

    # ---- threads ----

    def do_bra(self, parts, args):
        return self.go_to(args[-1])

    def go_to(self, label):
        part = self.part_of[label]
        if part == self.part:
            return f'goto L_{identifier(label)};'
        return f'return {part << 16 | self.entry_of[label]};'

    def do_ret(self, parts, args):
        return 'return -1;'

    do_exit = do_ret

    def do_mapa(self, parts, args):
        if parts[1:] != ['shared', 'cluster', 'u32']:
            raise Unknown('.'.join(parts))
        return self.store(args[0], 'u32', f'hc_cluster_address({self.value(args[1], "u32")}, '
                                          f'{self.value(args[2], "u32")})')

    def do_mbarrier(self, parts, args):
        """Barriers in shared memory. A try waits until it can say yes."""
        at = [self.value(a.strip('[] '), 'u32') for a in args if a not in ('_',)]
        how = '.'.join(p for p in parts[1:] if p not in ('release', 'acquire', 'b64'))
        if how == 'init.shared.cta':
            return f'sp_mbarrier_init({at[0]}, {at[1]}, {self.site()});'
        if how == 'arrive.expect_tx.shared.cta' and args[0] == '_':
            return f'sp_mbarrier_expect({at[0]}, {at[1]}, {self.site()});'
        if how == 'arrive.shared.cluster' and args[0] == '_':
            return f'hc_mbarrier_arrive({at[0]}, {self.site()});'
        if how == 'try_wait.parity.shared.cta':
            at = [self.value(a.strip('[] '), 'u32') for a in args[1:]]
            return (f'sp_mbarrier_wait({at[0]}, {at[1]}, {self.site()}); '
                    + self.store(args[0], 'pred', 'true'))
        raise Unknown('.'.join(parts))

    def do_bar(self, parts, args):
        if parts[1] == 'cluster':
            relaxed = '_relaxed' if 'relaxed' in parts else ''
            return f'sp_cluster_{parts[2]}{relaxed}({self.site()});'
        if parts[1] == 'warp':
            return f'hc_collective(HC_SYNC, {self.value(args[0], "b32")}, 0, 0, {self.site()});'
        if parts[1:3] == ['red', 'or'] and args[1] == '0':
            return self.store(args[0], 'pred', f'is_in_block({self.value(args[-1], "pred")}, '
                                               f'{self.site()})')
        if parts[1] not in ('sync', 'cta') or args[0] != '0':
            raise Unknown('.'.join(parts))
        return f'__syncthreads({self.site()});'

    do_barrier = do_bar

    def do_shfl(self, parts, args):
        out = args[0].split('|')
        text = (f'bool is; const uint32_t v = shuffle(SHFL_{parts[2].upper()}, '
                + ', '.join(self.value(a, 'b32') for a in args[1:5])
                + f', &is, {self.site()}); ' + self.store(out[0], 'b32', 'v'))
        return text + (self.store(out[1], 'pred', 'is') if len(out) > 1 else '')

    def do_vote(self, parts, args):
        how = next(p for p in parts if p in ('ballot', 'any'))
        op = 'HC_' + how.upper()
        kind = 'b32' if how == 'ballot' else 'pred'
        return self.store(args[0], kind, f'hc_collective({op}, {self.value(args[2], "b32")}, '
                                         f'{self.value(args[1], "pred")}, 0, {self.site()})')

    def do_ldmatrix(self, parts, args):
        regs = split(args[0][1:-1])
        if 'x4' not in parts:
            raise Unknown('.'.join(parts))
        op = 'HC_LDMATRIX_TRANS' if 'trans' in parts else 'HC_LDMATRIX'
        return (f'uint32_t r[4]; hc_tensor({op}, r, {self.address(args[1], "shared")}, 0, '
                f'{self.site()}); '
                + ' '.join(self.store(x, 'b32', f'r[{i}]') for i, x in enumerate(regs)))

    def do_mma(self, parts, args):
        shapes = {'m16n8k16': ('bf16', 'HC_MMA_BF16'), 'm16n8k8': ('tf32', 'HC_MMA_TF32')}
        operand, op = shapes[parts[3]]
        if parts[4:] != ['row', 'col', 'f32', operand, operand, 'f32']:
            raise Unknown('.'.join(parts))
        d, a, b, c = [split(x[1:-1]) for x in args]
        values = [', '.join(self.value(x, k) for x in v) for v, k in ((c, 'f32'), (a, 'b32'))]
        return (f'float c[4] = {{{values[0]}}}; const uint32_t a[4] = {{{values[1]}}}; '
                f'hc_tensor({op}, c, a, (uint64_t){self.value(b[1], "b32")} << 32 | '
                f'{self.value(b[0], "b32")}, {self.site()}); '
                + ' '.join(self.store(x, 'f32', f'c[{i}]') for i, x in enumerate(d)))

    def do_wgmma(self, parts, args):
        """Registers are locals here, so that sums change at once; operands are still
        read late as far as the checks go."""
        simple = {'fence': 'FENCE', 'commit_group': 'COMMIT', 'wait_group': 'WAIT'}
        if parts[1] in simple:
            return (f'hc_tensor(HC_WGMMA_{simple[parts[1]]}, nullptr, nullptr, '
                    f'{args[0] if args else 0}, {self.site()});')
        sums = split(args[0][1:-1])
        if (parts[4:] != [f'm64n{2 * len(sums)}k16', 'f32', 'bf16', 'bf16']
                or args[3:6] != ['1', '1', '1'] or args[6:] not in (['0', '0'], ['1', '1'])):
            raise Unknown('.'.join(parts))
        is_transposed = 'true' if args[6] == '1' else 'false'
        values = ', '.join(self.value(x, 'f32') for x in sums)
        return (f'float d[] = {{{values}}}; hc_wgmma(d, {2 * len(sums)}, '
                f'{self.value(args[1], "b64")}, {self.value(args[2], "b64")}, '
                f'{is_transposed}, true, {self.site()}); '
                + ' '.join(self.store(x, 'f32', f'd[{i}]') for i, x in enumerate(sums)))

    # ---- declarations ----

    def declare(self, text):
        """In a scope within the kernel, as inline PTX opens one."""
        names = self.note_registers(text)
        return f'{C_TYPE[self.kind[names[0]]]} ' + ', '.join(map(self.register, names)) + ';'

    def note_registers(self, text):
        """The names that a .reg statement declares."""
        m = re.match(r'\.reg\s+\.(\w+)\s+(.*)$', text)
        names = []
        for name in split(m[2]):
            many = re.match(r'(%\w+)<(\d+)>$', name)
            names += [f'{many[1]}{i}' for i in range(int(many[2]))] if many else [name]
        self.kind.update((name, m[1]) for name in names)
        return names

    def note_array(self, text):
        """A .local array as a member of the structure; other declarations are the module's."""
        m = re.match(r'\.local\s+\.align\s+(\d+)\s+\.b8\s+([\w$]+)\[(\d+)\]$', text)
        if not m:
            return []
        self.arrays.add(m[2])
        return [f'alignas({m[1]}) char {identifier(m[2])}[{m[3]}];']
