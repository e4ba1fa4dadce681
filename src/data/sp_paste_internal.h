/* Inside of sp_paste: the objects of a bank. */
#ifndef SP_PASTE_INTERNAL_H
#define SP_PASTE_INTERNAL_H

#include "data/sp_paste.h"

struct sp_bank {
    sp_dataset set;
    int n_columns;
    sp_sample *object; /* [set.n_samples] */
    int n_classes;     /* classes that are pasted and have objects */
    int *first;        /* [n_classes + 1] a class' first entry of `member` */
    int *member;       /* [first[n_classes]] numbers of objects by class */
};

#endif
