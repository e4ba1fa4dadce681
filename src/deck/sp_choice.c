#include "deck/sp_choice.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/sp_word_table.h"
#include "deck/sp_deck.h"

const char *const sp_crop_shape_word[] = {SP_CROPS(SP_CHOICE_WORD)};
const char *const sp_family_word[] = {SP_FAMILIES(SP_CHOICE_WORD)};
const char *const sp_optimizer_word[] = {SP_OPTIMIZERS(SP_CHOICE_WORD)};
const char *const sp_schedule_word[] = {SP_SCHEDULES(SP_CHOICE_WORD)};
const char *const sp_precision_word[] = {SP_PRECISIONS(SP_CHOICE_WORD)};
const char *const sp_bf16_sums_word[] = {SP_BF16_SUMS(SP_CHOICE_WORD)};

bool sp_choice_name(const char *names, int i, char *to)
{
    assert(names && i >= 0 && to);
    while (i > 0 && (names = strchr(names, '|'))) {
        names++;
        i--;
    }
    if (names)
        snprintf(to, SP_NAME, "%.*s", (int)strcspn(names, "|"), names);
    return names;
}

int sp_choice_find(const char *names, const char *word)
{
    char name[SP_NAME];

    assert(names && word);
    for (int i = 0; sp_choice_name(names, i, name); i++)
        if (!strcasecmp(name, word))
            return i;
    return -1;
}

void sp_choice_nearest(const char *names, const char *word, char *to)
{
    char name[SP_NAME];
    int least = 0;

    assert(names && word && to);
    for (int i = 0; sp_choice_name(names, i, name); i++) {
        int d = sp_word_distance(word, name);

        if (i == 0 || d < least) {
            least = d;
            memcpy(to, name, SP_NAME);
        }
    }
}
