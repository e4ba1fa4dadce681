/* Which launches are ordered with which, whatever order the emulator ran them in:
 * launches of one stream, one that another stream waits for by an event, and one that
 * the host saw complete before it launched the other. Two launches that are not ordered
 * may run at the same time on a device, so the race checker looks for bytes that both
 * of them access. */
#include "emulator/hostcuda_internal.h"

#include <map>

/* For streams that a launch is ordered behind: number of the last launch of each. */
typedef std::map<uint32_t, uint32_t> order_clock;
typedef std::shared_ptr<const order_clock> shared_clock;

struct launch_order {
    uint32_t stream, place;        /* number of its stream; place in it, from 1 */
    uint64_t launched_at, seen_at; /* ticks; seen_at 0: the host did not see its end */
    shared_clock others;
};

struct hc_stream_order {
    uint32_t number, place;
    shared_clock others;
    std::vector<uint32_t> unseen; /* launches that the host did not see complete */
};

struct hc_point {
    uint32_t stream, place;
    shared_clock others;
};

static uint64_t tick;
static uint32_t n_streams;
static std::vector<launch_order> &launches = *new std::vector<launch_order>(1);
static std::map<uint32_t, hc_stream_order *> &streams =
    *new std::map<uint32_t, hc_stream_order *>();

hc_stream_order *hc_order_create()
{
    hc_stream_order *o = new hc_stream_order();

    o->number = ++n_streams;
    o->others = std::make_shared<const order_clock>();
    streams[o->number] = o;
    return o;
}

void hc_order_destroy(hc_stream_order *o)
{
    streams.erase(o->number);
    delete o;
}

void hc_order_launch(hc_stream_order *o, uint32_t launch)
{
    if (launches.size() <= launch)
        launches.resize(launch + 1);
    launches[launch] = {o->number, ++o->place, ++tick, 0, o->others};
    o->unseen.push_back(launch);
}

std::shared_ptr<const hc_point> hc_order_point(const hc_stream_order *o)
{
    return std::make_shared<const hc_point>(hc_point{o->number, o->place, o->others});
}

void hc_order_wait(hc_stream_order *o, const std::shared_ptr<const hc_point> &point)
{
    order_clock merged = *o->others;

    for (const auto &other : *point->others)
        merged[other.first] = std::max(merged[other.first], other.second);
    merged[point->stream] = std::max(merged[point->stream], point->place);
    merged.erase(o->number);
    o->others = std::make_shared<const order_clock>(merged);
}

/* The host has seen launches 1 .. place of a stream complete. */
static void see(uint32_t stream, uint32_t place)
{
    const auto found = streams.find(stream);
    size_t left = 0;

    if (found == streams.end())
        return;
    std::vector<uint32_t> &unseen = found->second->unseen;
    for (uint32_t launch : unseen)
        if (launches[launch].place <= place)
            launches[launch].seen_at = tick;
        else
            unseen[left++] = launch;
    unseen.resize(left);
}

void hc_order_seen(const std::shared_ptr<const hc_point> &point)
{
    tick++;
    see(point->stream, point->place);
    for (const auto &other : *point->others)
        see(other.first, other.second);
}

bool hc_is_ordered(uint32_t before, uint32_t after)
{
    const launch_order &a = launches[before], &b = launches[after];

    if (a.stream == b.stream)
        return a.place <= b.place;
    if (a.seen_at && a.seen_at < b.launched_at)
        return true;
    const auto found = b.others->find(a.stream);
    return found != b.others->end() && found->second >= a.place;
}
