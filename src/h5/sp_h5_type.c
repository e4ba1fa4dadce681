#include "h5/sp_h5_internal.h"

#include <assert.h>
#include <string.h>

static bool is_ieee(hid_t type, size_t size)
{
    static const size_t exponent[] = {[2] = 5, [4] = 8, [8] = 11};
    size_t sign, e_at, e_bits, m_at, m_bits;

    if (size != 2 && size != 4 && size != 8)
        return false;
    if (H5Tget_fields(type, &sign, &e_at, &e_bits, &m_at, &m_bits) < 0)
        return false;
    return e_bits == exponent[size] && m_bits == 8 * size - 1 - e_bits && m_at == 0 &&
           e_at == m_bits && sign == 8 * size - 1 &&
           H5Tget_ebias(type) == ((size_t)1 << (e_bits - 1)) - 1 &&
           H5Tget_norm(type) == H5T_NORM_IMPLIED;
}

static void describe_number(hid_t type, sp_h5_type *out)
{
    size_t size = H5Tget_size(type);
    H5T_order_t order = H5Tget_order(type);
    bool is_whole = H5Tget_precision(type) == 8 * size && H5Tget_offset(type) == 0 &&
                    (order == H5T_ORDER_LE || order == H5T_ORDER_BE);

    out->is_swapped = size > 1 && order != H5Tget_order(H5T_NATIVE_INT);
    if (!is_whole)
        return;
    if (H5Tget_class(type) == H5T_FLOAT && is_ieee(type, size))
        out->kind = 'f';
    else if (H5Tget_class(type) == H5T_INTEGER &&
             (size == 1 || size == 2 || size == 4 || size == 8))
        out->kind = H5Tget_sign(type) == H5T_SGN_NONE ? 'u' : 'i';
}

sp_h5_type sp_h5_type_of(hid_t type)
{
    const size_t size = H5Tget_size(type);
    sp_h5_type out = {'?', size > 0 && size <= INT32_MAX ? (int)size : 1, false};
    hid_t base;

    switch (H5Tget_class(type)) {
    case H5T_INTEGER:
    case H5T_FLOAT:
        describe_number(type, &out);
        break;
    case H5T_ENUM: /* h5py stores booleans so */
        base = H5Tget_super(type);
        describe_number(base, &out);
        H5Tclose(base);
        break;
    case H5T_STRING:
        out.kind = 's';
        break;
    default:
        break;
    }
    return out;
}

hid_t sp_h5_native(sp_h5_type type)
{
    static const char kinds[] = "iuf";
    const hid_t of_kind[][4] = {
        {H5T_NATIVE_INT8, H5T_NATIVE_INT16, H5T_NATIVE_INT32, H5T_NATIVE_INT64},
        {H5T_NATIVE_UINT8, H5T_NATIVE_UINT16, H5T_NATIVE_UINT32, H5T_NATIVE_UINT64},
        {H5I_INVALID_HID, H5I_INVALID_HID, H5T_NATIVE_FLOAT, H5T_NATIVE_DOUBLE}};

    assert(type.kind == 'f' || type.kind == 'i' || type.kind == 'u');
    assert(type.size == 1 || type.size == 2 || type.size == 4 || type.size == 8);
    return of_kind[strchr(kinds, type.kind) - kinds]
                  [__builtin_ctz((unsigned)type.size)];
}

hid_t sp_h5_text_type(size_t size, H5T_cset_t set)
{
    hid_t type = H5Tcopy(H5T_C_S1);

    H5Tset_size(type, size ? size : H5T_VARIABLE);
    H5Tset_cset(type, set);
    return type;
}
