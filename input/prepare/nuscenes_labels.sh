#!/bin/sh
# nuScenes names the files of lidarseg labels by tokens, which its tables lead to scans. This
# script links each label file as samples/lidarseg/SCAN_lidarseg.bin, where spvox convert
# finds it, and writes the lists of scans scans-train.txt and scans-val.txt.
#
#   sh nuscenes_labels.sh ROOT VERSION [VAL_SCENES]
#
# ROOT has the folders samples, lidarseg and VERSION (v1.0-trainval, v1.0-mini). VAL_SCENES
# has the name of a scene for validation in each line; without it all scans are for training.
set -eu
if [ $# -lt 2 ] || [ $# -gt 3 ]; then
    sed -n 's/^# \{0,1\}//; 2,/^$/p' "$0" >&2
    exit 2
fi
root=$1 version=$2 scenes=${3:-/dev/null}
for table in scene sample lidarseg sample_data; do
    test -r "$root/$version/$table.json" || {
        echo "$0: $root/$version/$table.json: cannot read this table" >&2
        exit 3
    }
done
list=$root/lidarseg-scans.tmp
# An object of a table is a record; it holds no other objects.
LC_ALL=C awk '
function get(key,   v) {
    if (!match($0, "\"" key "\"[ \t\r\n]*:[ \t\r\n]*\"[^\"]*\""))
        return ""
    v = substr($0, RSTART, RLENGTH - 1)
    sub(/^"[^"]*"[^"]*"/, "", v)
    return v
}
FILENAME == ARGV[1] { is_val[$1] = 1; next }
FILENAME ~ /\/scene.json$/ { if (get("name") in is_val) val_scene[get("token")] = 1 }
FILENAME ~ /\/sample.json$/ { if (get("scene_token") in val_scene) val_sample[get("token")] = 1 }
FILENAME ~ /\/lidarseg.json$/ { if (get("filename") != "") label[get("sample_data_token")] = get("filename") }
FILENAME ~ /\/sample_data.json$/ {
    if (get("token") in label)
        print label[get("token")] "\t" get("filename") "\t" (get("sample_token") in val_sample ? "val" : "train")
}' "$scenes" RS='}' "$root/$version/scene.json" "$root/$version/sample.json" \
    "$root/$version/lidarseg.json" "$root/$version/sample_data.json" | sort -k 2 >"$list"
test -s "$list" || {
    echo "$0: $root/$version: its tables have no lidarseg labels" >&2
    exit 3
}
mkdir -p "$root/samples/lidarseg"
while IFS="$(printf '\t')" read -r label scan set; do
    name=${scan##*/}
    ln -sf "../../$label" "$root/samples/lidarseg/${name%.pcd.bin}_lidarseg.bin"
done <"$list"
for set in train val; do
    awk -F'\t' -v root="$root" -v set=$set '$3 == set { print root "/" $2 }' "$list" >"$root/scans-$set.txt"
    echo "$root/scans-$set.txt: $(wc -l <"$root/scans-$set.txt") scans"
done
rm "$list"
