/* A synthetic room and a hand-held scanner in it. Local; a pure function of its random
 * generators.
 *
 *     walls, floor, ceiling    the inside of a box; a door and windows are of the wall
 *     tables, chairs, cabinets boxes that stand on the floor, turned by any angle
 *     lamps, boxes             not labelled
 *
 * The scanner stands at several places at eye level and looks all round; each ray ends
 * at the first surface that it meets, so furniture hides objects farther away. */
#ifndef SP_ROOM_H
#define SP_ROOM_H

#include "scan/scene/sp_lidar.h"

enum {
    SP_ROOM_FLOOR,
    SP_ROOM_WALL,
    SP_ROOM_CEILING,
    SP_ROOM_TABLE,
    SP_ROOM_CHAIR,
    SP_ROOM_CABINET,
    SP_ROOM_CLASSES
};

/* Appends the points of a room; its longer wall has `extent` metre, 4 to 16. Local.
 * SP_EMEM. */
sp_status sp_room_scan(sp_lidar *scan, double extent, sp_rng *layout, sp_rng *pulses);

#endif
