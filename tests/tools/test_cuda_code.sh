#!/bin/sh
# cuda_code.py counts a loop of machine code as it is, and finds a loop that grew, a
# WARPSYNC, a load that moved behind the products, a kernel without limits, and what may not
# stand ahead of a kernel's wait or should. The listings are written here: small kernels of
# known size.
command -v python3 >/dev/null && command -v c++filt >/dev/null || {
    echo "SKIPPED: no python3 or no c++filt"
    exit 77
}
dir=$(mktemp -d) || exit 99
trap 'rm -rf "$dir"' EXIT
tool=$SP_SRCDIR/tests/tools/cuda_code.py
fail() {
    echo "FAILED: $*"
    cat "$dir/log"
    exit 1
}

# listing FILLING AHEAD EXTRA [TILE [EARLY [WAIT]]]: a kernel with the products of one k-tile of 128 x 128
# in bf16, behind a branch that skips FILLING instructions. It begins with EARLY and WAIT.
listing() {
    awk -v filling="$1" -v ahead="$2" -v extra="$3" -v tile="${4:-128}" \
        -v early="${5:-LDG.E R2, [R4.64]}" -v wait="${6:-ACQBULK}" '
        function put(text) { printf "        /*%04x*/  %s ;\n", 16 * n++, text }
        BEGIN {
            name = "_Z11conv_kernelIL12sp_precision2E9conv_tileILi128ELi" tile \
                "ELi2ELi2ELi2EELb1ELi65536EEv9conv_call"
            print "\t.section\t.text." name ",\"ax\",@progbits"
            print ".text." name ":"
            put("LDC R1, c[0x0][0x28]")
            put(early)
            put(wait)
            put("@P0 EXIT")
            print ".L_x_0:"
            put("@!P1 BRA `(.L_x_1)")
            for (i = 0; i < filling; i++)
                put("IADD3 R2, R2, 0x1, RZ")
            print ".L_x_1:"
            for (i = 0; i < ahead; i++)
                put("LDSM.16.M88.4 R4, [R3]")
            for (i = 0; i < 64; i++)
                put("HMMA.16816.F32.BF16 R8, R4, R12, R8")
            for (i = ahead; i < 16; i++)
                put("LDSM.16.M88.4 R4, [R3]")
            if (extra)
                put(extra)
            put("@P2 BRA `(.L_x_0)")
            put("EXIT")
            print ".L_x_2:"
            put("BRA `(.L_x_2)")
            put("NOP")
        }'
}

check() { # check STATUS TEXT: of the listing, whose last columns are of cubins alone
    python3 "$tool" --listing "$dir/code" >"$dir/log" 2>&1
    status=$?
    [ $status = "$1" ] || fail "status $status, expected $1"
    grep -q "$2" "$dir/log" || fail "no \"$2\""
}

listing 60 16 "" >"$dir/code"
check 0 '^conv bf16 128 2x2 whole *142 *64 *0 *16 .* 6 *2384$'
listing 260 16 "" >"$dir/code"
check 1 'instructions of the loop: 342, expected at most'
listing 60 16 "WARPSYNC 0xffffffff" >"$dir/code"
check 1 'WARPSYNC in the loop: 1, expected at most 0'
listing 60 1 "" >"$dir/code"
check 1 'loads ahead of the products: 1, expected at least'
listing 60 16 "" 160 >"$dir/code"
check 1 'conv bf16 160 2x2 whole: no limits for it'
listing 60 16 "" 128 "LDGSTS.E.BYPASS.128 [R2], [R4.64]" >"$dir/code"
check 1 'whole: LDGSTS.E.BYPASS.128 ahead of the wait'
check 1 'whole: its table waits for the preceding kernel'
listing 60 16 "" 128 "" NOP >"$dir/code"
check 1 'whole: no wait for the preceding kernel'

# grouped PRODUCTS CLOSE: a kernel of wgmma with four products in one of two branches, the
# last of them with PRODUCTS, and CLOSE after both.
grouped() {
    awk -v last="$1" -v close_it="$2" '
        function put(text) { printf "        /*%04x*/  %s ;\n", 16 * n++, text }
        BEGIN {
            name = "_Z12wgmma_kernelI10wgmma_tileILi128ELi256ELi4ELi1ELi1ELi1EELb1ELi213776EEv9conv_call"
            print "\t.section\t.text." name ",\"ax\",@progbits"
            print ".text." name ":"
            put("LDG.E R2, [R4.64]")
            put("ACQBULK")
            print ".L_x_0:"
            put("WARPGROUP.DEPBAR.LE gsb0, 0x1")
            put("LDGSTS.E.BYPASS.128 [R2], [R4.64]")
            put("@P0 BRA `(.L_x_1)")
            put("HGMMA.64x8x16.F16 RZ, gdesc[URZ], RZ, !UPT, gsb0")
            put("BRA `(.L_x_2)")
            print ".L_x_1:"
            for (i = 0; i < 3; i++)
                put("HGMMA.64x256x16.F32.BF16 R24, gdesc[UR8], R24")
            put("HGMMA.64x256x16.F32.BF16 R24, gdesc[UR8], R24" last)
            print ".L_x_2:"
            if (close_it)
                put("HGMMA.64x8x16.F16 RZ, gdesc[URZ], RZ, !UPT, gsb0")
            put("@P2 BRA `(.L_x_0)")
            put("EXIT")
        }' >"$dir/code"
}
grouped ", gsb0" ""
python3 "$tool" --listing "$dir/code" >"$dir/log" 2>&1
grep -q 'groups of products' "$dir/log" && fail "two branches that close one group each"
grep -q '^wgmma bf16 256 whole' "$dir/log" || fail "wgmma is not read"
grouped ", gsb0" yes
check 1 '^wgmma bf16 256 whole: groups of products that a step closes: 2, expected 1$'
echo >"$dir/code"
check 1 '^0 kernels'
