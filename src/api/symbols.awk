# Prints the names of the functions that include/sptrain.h declares, one a line, sorted as
# they come: the global names of the library. Each declaration begins in the first column and
# has the name in its first line.
/^[a-z].*[ *]sp_[a-z0-9_]+\(/ && !/^typedef/ {
    match($0, /sp_[a-z0-9_]+\(/)
    print substr($0, RSTART, RLENGTH - 1)
}
