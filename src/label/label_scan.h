/* The scans of `sptrain label`, from points to outputs, over all ranks.
 *
 *     whole scans   scan k of those to do by rank k % size, without a message
 *     blocks        scan by scan, by all ranks together:
 *
 *         each rank       cuts its part of the rows into a temporary file  label_cut.h
 *         all ranks       know the pieces; a round has a few for each rank, dealt by
 *                         their numbers of points, the same on all ranks
 *         each rank       piece --> sample --> label_net --> label_blocks
 *         each rank       gets the classes of its rows, and writes them
 *                         (label_result.h)
 *         rank k % size   joins what the ranks wrote (only this rank writes formats
 *                         other than LAS and LAZ)
 *
 * In addition to the thread that computes and speaks with the other ranks, a rank has
 * up to three that do neither:
 *
 *     cut      its part of the next scan, while this one is predicted
 *     ahead    points of the next piece (or scan) --> sample        label_ahead.h
 *     writer   rows that are placed --> output                       label_writer.h
 *
 * The temporary files are in DIR, which every rank must see. */
#ifndef LABEL_SCAN_H
#define LABEL_SCAN_H

#include "label/label_work.h"

/* Makes all outputs that are missing. Collective, agreed: blocks fail together, and a
 * rank that fails with a whole scan ends the others (sp_session_run_or_abort). */
sp_status label_scan_all(label_work *work);
/* The same for scans in blocks; not agreed on the outputs of the last scans. */
sp_status label_scan_blocks(label_work *work);

#endif
