#!/bin/sh
# Data sets as they are distributed: their layouts, made small, become shards with the right
# labels: nuScenes with labels by token, ScanNet with labels in a second PLY, Toronto-3D and
# DALES with labels in the PLY, S3DIS with a file for each object. An input list stands for
# arguments.
. "$SP_SRCDIR/tests/fixtures/program.sh"

SPTRAIN=$SP_BUILDDIR/spvox # what run starts
maps=$SP_SRCDIR/input/maps

# floats: numbers of its input as float32, the lowest byte first.
floats() {
    awk 'function put(b) { printf "\\0%03o", b }
    { for (k = 1; k <= NF; k++) {
        x = $k; s = 0; e = 127
        if (x < 0) { s = 128; x = -x }
        if (x == 0) { put(0); put(0); put(0); put(0); continue }
        while (x >= 2) { x /= 2; e++ }
        while (x < 1) { x *= 2; e-- }
        m = int((x - 1) * 8388608 + 0.5)
        put(m % 256); put(int(m / 256) % 256); put(e % 2 * 128 + int(m / 65536)); put(s + int(e / 2))
    } }
    END { print "" }' | { read -r text && printf '%b' "$text"; }
}

# nuScenes: a scan of the training, one of the validation, and a sweep without labels.
mkdir -p nu/samples/LIDAR_TOP nu/lidarseg/v1.0-mini nu/v1.0-mini
for k in 1 2; do
    awk -v k=$k 'BEGIN { for (i = 0; i < 24; i++) print i, k, i % 3, i % 7, i % 5 }' |
        floats >nu/samples/LIDAR_TOP/n008__LIDAR_TOP__$k.pcd.bin
    awk -v k=$k 'BEGIN { for (i = 0; i < 24; i++) printf "\\0%03o", i < 8 ? 24 : i < 20 ? 17 : k == 1 ? 0 : 3; print "" }' |
        { read -r text && printf '%b' "$text"; } >nu/lidarseg/v1.0-mini/aa0${k}_lidarseg.bin
done
printf '[\n{\n"token": "s1",\n"name": "scene-0061"\n},\n{\n"token": "s2",\n"name": "scene-0103"\n}\n]\n' >nu/v1.0-mini/scene.json
printf '[{"token":"p1","timestamp":1,"scene_token":"s1"},{"token":"p2","scene_token":"s2"}]' >nu/v1.0-mini/sample.json
printf '[\n{\n"token": "aa01",\n"sample_data_token": "aa01",\n"filename": "lidarseg/v1.0-mini/aa01_lidarseg.bin"\n},\n{\n"token": "aa02",\n"sample_data_token": "aa02",\n"filename": "lidarseg/v1.0-mini/aa02_lidarseg.bin"\n}\n]\n' >nu/v1.0-mini/lidarseg.json
printf '[\n{\n"token": "aa02",\n"sample_token": "p2",\n"filename": "samples/LIDAR_TOP/n008__LIDAR_TOP__2.pcd.bin"\n},\n{\n"token": "bb",\n"sample_token": "p2",\n"filename": "sweeps/LIDAR_TOP/x.pcd.bin"\n},\n{\n"token": "aa01",\n"sample_token": "p1",\n"filename": "samples/LIDAR_TOP/n008__LIDAR_TOP__1.pcd.bin"\n}\n]\n' >nu/v1.0-mini/sample_data.json
echo scene-0103 >val.txt
sh "$SP_SRCDIR/input/prepare/nuscenes_labels.sh" nu v1.0-mini val.txt >out 2>err || fail "nuscenes_labels.sh"
says out 'scans-train.txt: *1 scans'
says out 'scans-val.txt: *1 scans'
run 1 0 convert --out t --voxel-size 0.05 --points --features x,y,z,intensity/255 \
    --map "@$maps/nuscenes16.map" --list nu/scans-train.txt
run 1 0 info t-00000-of-00001.h5
says out 'car  *12 .*50'
says out 'driveable_surface  *8 '
says out 'ignored  *4 '
run 2 0 convert --out v --voxel-size 0.05 --map "@$maps/nuscenes16.map" --list nu/scans-val.txt
run 1 0 info v-00000-of-00001.h5
says out 'pedestrian  *4 '
run 2 0 convert --out a --voxel-size 0.05 --list nu/scans-train.txt nu/samples/LIDAR_TOP/*2.pcd.bin
says out 'samples=2 .*labels=yes'
run 1 2 convert --out a --list none.txt
says err '\-\-list: .*none.txt'
: >empty.txt
run 1 2 convert --out a --list empty.txt
says err 'no input'
sh "$SP_SRCDIR/input/prepare/nuscenes_labels.sh" nu v2 >out 2>err && fail "a version that is not there"
says err 'v2/scene.json: cannot read'

# ScanNet: a scene, whose labels are in a second file.
ply() { # ply NAME PROPERTIES ROW...
    name=$1 properties=$2
    shift 2
    { printf 'ply\nformat ascii 1.0\nelement vertex %d\n' $#
        printf 'property float x\nproperty float y\nproperty float z\n'
        for each in $properties; do printf 'property %s %s\n' "${each%:*}" "${each#*:}"; done
        printf 'end_header\n'
        printf '%s\n' "$@"; } >"$name"
}
colours="uchar:red uchar:green uchar:blue"
ply s_vh_clean_2.ply "$colours" '0 0 0 10 20 30' '1 0 0 11 21 31' '2 0 0 12 22 32' '3 0 0 13 23 33'
ply s_vh_clean_2.labels.ply "$colours ushort:label" '0 0 0 1 1 1 1' '1 0 0 1 1 1 2' '2 0 0 1 1 1 39' '3 0 0 0 0 0 0'
for n in 1 2; do
    for options in "" "--block 2"; do
        # shellcheck disable=SC2086
        run $n 0 convert --out s --voxel-size 0.02 --points --features red,green,blue $options \
            --map "@$maps/scannet20.map" s_vh_clean_2.ply
        says out 'labels=yes'
        run 1 0 info s-00000-of-00001.h5
        says out 'wall  *1 '
        says out 'floor  *1 '
        says out 'otherfurniture  *1 '
        says out 'ignored  *1 '
        says out 'red  *10  *13'
    done
done
ply s_vh_clean_2.labels.ply "ushort:label" '0 0 0 1' '1 0 0 2'
run 2 3 convert --out s s_vh_clean_2.ply
says err 's_vh_clean_2.labels.ply: 2 points, expected 4, as many as s_vh_clean_2.ply has'
ply s_vh_clean_2.labels.ply "ushort:label" '0 0 0 1' '1 0 0 2' '2 0 0.5 3' '3 0 0 4'
run 1 3 convert --out s s_vh_clean_2.ply
says err 'labels.ply: point 2 is not where point 2 of s_vh_clean_2.ply is'
ply s_vh_clean_2.labels.ply "" '0 0 0' '1 0 0' '2 0 0' '3 0 0'
run 1 3 convert --out s s_vh_clean_2.ply
says err 'labels.ply: has no attribute label'
rm s_vh_clean_2.labels.ply
run 1 0 convert --out s s_vh_clean_2.ply
says out 'labels=none'

# Toronto-3D: labels are floats. DALES objects: the element is not called vertex.
ply L001.ply "$colours float:scalar_Intensity float:scalar_GPSTime float:scalar_ScanAngleRank float:scalar_Label" \
    '0 0 0 1 2 3 40.5 1 0 1' '1 0 0 1 2 3 41 1 0 8' '2 0 0 1 2 3 42 1 0 0'
run 1 0 convert --out l --voxel-size 0.05 --features red,scalar_Intensity --map "@$maps/toronto3d.map" L001.ply
run 1 0 info l-00000-of-00001.h5
says out 'road  *1 '
says out 'fence  *1 '
says out 'ignored  *1 '
says out 'scalar_Intensity  *40.5  *42'
ply 5080.ply "uchar:intensity uchar:sem_class int:ins_class" '0 0 0 9 1 7' '1 0 0 9 8 7' '2 0 0 9 8 300' '3 0 0 9 0 1'
sed 's/^element vertex/element testing/' 5080.ply >5100.ply
run 2 0 convert --out d --voxel-size 0.25 --features one,height,intensity --map "@$maps/dales.map" 5080.ply 5100.ply
run 1 0 info d-00000-of-00001.h5
says out 'ground  *2 '
says out 'buildings  *4 '
says out 'ignored  *2 '

# S3DIS: two rooms; stairs are clutter; one line has a byte that is no text.
for room in Area_1/office_1 Area_5/hallway_6; do
    mkdir -p "s3/$room/Annotations"
    printf '0 0 3 10 20 30\r\n1 0 3 10 20 30\r\n' >"s3/$room/Annotations/ceiling_1.txt"
    printf '0 0 0 1 2 3\n1 0 0 1 2 3\n2 0 0 1 2 3\n' >"s3/$room/Annotations/floor_1.txt"
    printf '2 1 0 1 2 3\n' >"s3/$room/Annotations/stairs_1.txt"
    cat "s3/$room/Annotations/"*.txt >"s3/$room/${room#*/}.txt"
done
printf '0 1 0 185\020187 3\n' >s3/Area_5/hallway_6/Annotations/board_1.txt
sh "$SP_SRCDIR/input/prepare/s3dis_rooms.sh" s3 rooms >out 2>err || fail "s3dis_rooms.sh"
says out 'rooms: 2 rooms'
run 1 0 convert --out r --voxel-size 0.05 --features x,y,z,red,green,blue --map "@$maps/s3dis.map" rooms/Area_[1-46]_*.txt
run 1 0 info r-00000-of-00001.h5
says out 'ceiling  *2 '
says out 'floor  *3 '
says out 'clutter  *1 '
run 1 0 convert --out r --voxel-size 0.05 --features x,y,z,red,green,blue --map "@$maps/s3dis.map" rooms/Area_5_*.txt
run 1 0 info r-00000-of-00001.h5
says out 'board  *1 '
says out 'green  *2  *187'
printf '0 1 0 185 3\n' >s3/Area_1/office_1/Annotations/board_1.txt
sh "$SP_SRCDIR/input/prepare/s3dis_rooms.sh" s3 rooms >out 2>err && fail "five numbers pass"
says err 'Annotations/board_1.txt: line 1 has 5 numbers, expected x y z r g b'
