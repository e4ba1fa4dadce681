/* Objects of rare classes that are pasted into samples of a training (augment.paste*).
 * Local; pure functions of their arguments, but for reading the bank.
 *
 *     shards --spvox bank--> a shard with one object a sample --sp_bank_open--> sp_bank
 *     stored rows --sp_paste_apply--> rows with pasted objects --> mixing, augmentation
 *
 * With probability augment.paste_p a sample gets augment.paste_count objects: a class
 * of those that the bank has and augment.paste_classes names is drawn, each alike, then
 * one of its objects. This is ground-truth sampling (Yan et al., "SECOND", Sensors
 * 2018), with these rules:
 *   - An object is turned about z by an angle that is drawn: about the sensor
 *     (augment.mix_sensor) if that is within the sample's box in x and y, so that its
 *     distance and the side that was seen stay; else about its middle, which is laid on
 *     a row that is drawn. Without /subvoxel angles are multiples of 90 degrees.
 *   - Its height above the ground stays. The ground is the lowest row within its box in
 *     x and y.
 *   - A place is taken if no row is within the object's box, but for rows less than
 *     0.5 m above the ground. An object has 8 tries, and is left out after them.
 *   - An object with which a sample would have more than augment.paste_voxels pasted
 *     rows is left out.
 *   - Rows that an object would hide from a sensor stay.
 * Vectors (sp_vectors) turn with an object, and positions are those of its new place.
 * Other features are unchanged. */
#ifndef SP_PASTE_H
#define SP_PASTE_H

#include "data/sp_shard.h"

typedef struct sp_bank sp_bank;

/* True if the deck pastes objects. */
bool sp_paste_is_on(const sp_config *config);
/* The most rows that are pasted into a sample; 0 if the deck pastes nothing. */
int64_t sp_paste_most(const sp_config *config);
/* The bytes of memory of the bank, at most; 0 if the deck pastes nothing. */
int64_t sp_bank_bytes(const sp_config *config);
/* Reads the objects of augment.paste, with columns [n_columns] of `set`. *bank is NULL
 * if nothing is pasted, and after a failure. SP_EDATA: the file is damaged, or does
 * not fit the set, or has no object of a class of augment.paste_classes; SP_EMEM. */
sp_status sp_bank_open(const sp_config *config, const sp_dataset *set,
                       const int *columns, int n_columns, sp_bank **bank);
void sp_bank_close(sp_bank *bank);
/* Appends objects to a sample with rows, in place; its arrays have room for
 * sp_paste_most more rows. Draws are keyed by (train.seed, epoch, sample->id).
 *   vectors  of the bank's columns; NULL: unchanged */
void sp_paste_apply(const sp_config *config, const sp_bank *bank,
                    const sp_vectors *vectors, uint64_t epoch, sp_sample *sample);

#endif
