/* The switch from one stack to another, for each kind of processor. */
#include "emulator/hostcuda_internal.h"

#if defined __x86_64__
asm(".text\n.globl hc_switch\nhc_switch:\n"
    " push %rbp\n push %rbx\n push %r12\n push %r13\n push %r14\n push %r15\n"
    " mov %rsp,(%rdi)\n mov %rsi,%rsp\n"
    " pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbx\n pop %rbp\n ret\n");

void *hc_first_frame(char *top, void (*entry)())
{
    void **s = (void **)top;

    *--s = NULL;
    *--s = (void *)entry;
    for (int i = 0; i < 6; i++)
        *--s = NULL;
    return s;
}
#elif defined __aarch64__
asm(".text\n.globl hc_switch\nhc_switch:\n sub sp,sp,#160\n"
    " stp x19,x20,[sp]\n stp x21,x22,[sp,#16]\n stp x23,x24,[sp,#32]\n"
    " stp x25,x26,[sp,#48]\n stp x27,x28,[sp,#64]\n stp x29,x30,[sp,#80]\n"
    " stp d8,d9,[sp,#96]\n stp d10,d11,[sp,#112]\n stp d12,d13,[sp,#128]\n"
    " stp d14,d15,[sp,#144]\n mov x2,sp\n str x2,[x0]\n mov sp,x1\n"
    " ldp x19,x20,[sp]\n ldp x21,x22,[sp,#16]\n ldp x23,x24,[sp,#32]\n"
    " ldp x25,x26,[sp,#48]\n ldp x27,x28,[sp,#64]\n ldp x29,x30,[sp,#80]\n"
    " ldp d8,d9,[sp,#96]\n ldp d10,d11,[sp,#112]\n ldp d12,d13,[sp,#128]\n"
    " ldp d14,d15,[sp,#144]\n add sp,sp,#160\n ret\n");

void *hc_first_frame(char *top, void (*entry)())
{
    void **s = (void **)(top - 160);

    memset(s, 0, 160);
    s[11] = (void *)entry; /* x30 */
    return s;
}
#else
#error "hostcuda: no context switch for this processor"
#endif
