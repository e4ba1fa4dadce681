#!/bin/sh
# No file of the source has one of the misspellings that codespell knows. Tests misspell some
# words on purpose, to see what messages suggest.
cd "${SP_SRCDIR-.}" || exit 1
command -v codespell >/dev/null || {
    echo "SKIPPED: codespell is not installed"
    exit 77
}
# It must find something: a codespell that cannot run would find nothing either.
echo 'recieve' | codespell - >/dev/null && {
    echo "codespell does not find a misspelt word"
    exit 1
}
bad=0
# bu is a macro of sptrain-trust(7), and bU a number of Python's struct.
# shellcheck disable=SC2046 # an archive has no findings
codespell --skip '*.keep' --ignore-words-list bu $(ls -d src cuda include examples man input jobs \
    packaging m4 findings README HACKING CONTRIBUTING CHANGELOG Makefile.am configure.ac 2>/dev/null) ||
    bad=1
codespell --skip '*.log,*.trs,*.keep' \
    --ignore-words-list bu,trian,sav,wieght,othe,kernal,nam,siz tests || bad=1
exit $bad
