/* A network that cannot be built is refused with the line of the deck, the layer and
 * the reason. */
#include "fixtures/test.h"

#include "net/sp_graph.h"

/* layers is the text inside net.layers = ( ... ), which stands on line 2 and after. */
static void refused_as(sp_status want, const char *layers, const char *message)
{
    char deck[2048];
    CLOSED_BY(sp_config_destroy) sp_config c;
    CLOSED_BY(sp_graph_destroy) sp_graph g;
    sp_status rc;

    snprintf(deck, sizeof deck, "net : { layers = (\n%s ); };", layers);
    OK(sp_config_parse(&c, deck, "d", 0, NULL));
    rc = sp_graph_build(&g, &c, 3, 4);
    if (rc != want || strcmp(sp_error_last()->message, message))
        fail_msg("%s\n  says    %s\n  not     %s", layers,
                 rc ? sp_error_last()->message : "accepted", message);
}

static void refused(const char *layers, const char *message)
{
    refused_as(SP_EUSAGE, layers, message);
}

#define CONV(name, more)   "{ name = \"" name "\"; op = \"conv\"; " more " }"
#define OUT4               "out = 4; kernel = 3;"
#define OP(name, op, more) "{ name = \"" name "\"; op = \"" op "\"; " more " }"

TEST(words)
{
    refused(OP("a", "convolution", ""),
            "d:2: layer a: unknown op \"convolution\"; nearest is \"conv\"");
    refused(CONV("a", OUT4) ",\n" OP("a", "relu", ""),
            "d:3: layer a: a layer before it has the same name");
    refused(CONV("input", OUT4), "d:2: layer input: the name \"input\" is reserved for "
                                 "the features of the voxels");
    refused(CONV("stem", OUT4) ",\n" OP("b", "relu", "from = \"sten\";"),
            "d:3: layer b: from \"sten\": no layer before it has this name; nearest is "
            "\"stem\"");
    refused(CONV("a", "kernel = 3;"), "d:2: layer a: conv needs out");
    refused(CONV("a", "out = 3;"), "d:2: layer a: conv needs kernel");
    refused(OP("a", "max_pool", "kernel = 2;"), "d:2: layer a: max_pool needs stride");
    refused(OP("a", "relu", "out = 3;"), "d:2: layer a: relu takes no out");
    refused(OP("a", "relu", "eps = 1e-3;"), "d:2: layer a: relu takes no eps");
    refused(OP("a", "relu", "momentum = 0;"), "d:2: layer a: relu takes no momentum");
    refused(OP("a", "linear", "out = 4; kernel = 3;"),
            "d:2: layer a: linear takes no kernel");
    refused(OP("a", "relu", "from = [\"input\", \"input\"];"),
            "d:2: layer a: relu takes 1 layers in from, found 2");
    refused(OP("a", "add", ""),
            "d:2: layer a: add takes 2 to 8 layers in from, found 1");
}

TEST(shapes)
{
    refused(CONV("a", OUT4) "," CONV("b", "out = 5; kernel = 3;") ",\n" OP(
                "s", "add", "from = [\"a\", \"b\"];"),
            "d:3: layer s: inputs a and b have 4 and 5 channels");
    refused(CONV("a", OUT4) "," CONV("b", OUT4 " stride = 2;") ",\n" OP(
                "s", "add", "from = [\"a\", \"b\"];"),
            "d:3: layer s: inputs a and b have strides 1 and 2");
    refused(CONV("a", OUT4) "," CONV("b", OUT4 " stride = 4;") ",\n" OP(
                "s", "concat", "from = [\"a\", \"b\"];"),
            "d:3: layer s: inputs a and b have strides 1 and 4");
    refused(
        CONV("a", OUT4) "," CONV("b", OUT4) "," CONV("c", OUT4 " stride = 2;") ",\n" OP(
            "s", "concat", "from = [\"a\", \"b\", \"c\"];"),
        "d:3: layer s: inputs a and c have strides 1 and 2");
    refused(CONV("a", OUT4) "," CONV("b", OUT4) "," CONV(
                "c", "out = 5; kernel = 3;") ",\n" OP("s", "add",
                                                      "from = [\"a\", \"b\", \"c\"];"),
            "d:3: layer s: inputs a and c have 4 and 5 channels");
    refused(CONV("a", OUT4) "," OP("g", "global_max_pool", "") ",\n" OP(
                "s", "concat", "from = [\"a\", \"g\"];"),
            "d:3: layer s: inputs a and g: rows of voxels and of samples");
    refused(CONV("a", OUT4) ",\n" OP("s", "broadcast", ""),
            "d:3: layer s: broadcast needs the rows of samples of a global pool");
    refused(OP("g", "global_avg_pool", "") ",\n" CONV("a", OUT4),
            "d:3: layer a: kernel and stride of rows of samples can only be 1");
    refused(OP("g", "global_avg_pool", "") ",\n" OP("h", "global_max_pool", ""),
            "d:3: layer h: global_max_pool of what is one row a sample already");
}

TEST(coordinates)
{
    static const char dilated[] = "kernel = 3; stride = 2; coordinates = \"dilated\";";
    char layers[512];

    refused(CONV("a", "out = 4; kernel = 2; stride = 2; coordinates = \"dilated\";"),
            "d:2: layer a: dilated coordinates need kernel 3 and stride 2");
    refused(CONV("a", "out = 4; kernel = 3; stride = 4; coordinates = \"dilated\";"),
            "d:2: layer a: dilated coordinates need kernel 3 and stride 2");
    refused(CONV("a", "out = 4; kernel = 3; coordinates = \"dilated\";"),
            "d:2: layer a: only a stride of 2 can have dilated coordinates");
    refused(OP("a", "relu", "coordinates = \"floor\";"),
            "d:2: layer a: relu takes no coordinates");
    snprintf(layers, sizeof layers,
             CONV("a", "out = 4; %s") ",\n" OP("b", "max_pool",
                                               "from = \"input\"; stride = 2;"),
             dilated);
    refused(layers, "d:3: layer b: a layer before it has given stride 2 its dilated "
                    "coordinates, this one asks for floor");
    snprintf(layers, sizeof layers,
             OP("a", "max_pool",
                "stride = 2;") ",\n" CONV("b", "from = \"input\"; out = 4; %s"),
             dilated);
    refused(layers, "d:3: layer b: a layer before it has given stride 2 its floor "
                    "coordinates, this one asks for dilated");
    snprintf(layers, sizeof layers,
             CONV("a", "out = 4; %s") ",\n" CONV(
                 "b", "from = \"input\"; out = 4; kernel = 2; stride = 4;"),
             dilated);
    refused(layers, "d:3: layer b: stride 4 passes over stride 2, which has dilated "
                    "coordinates");
    snprintf(layers, sizeof layers,
             CONV("a", "out = 4; kernel = 2; stride = 4;") ",\n" CONV(
                 "b", "from = \"input\"; out = 4; %s"),
             dilated);
    refused(layers, "d:3: layer b: dilated coordinates come too late: a layer before "
                    "it has stride 4");
}

TEST(strides)
{
    refused(CONV("a", OUT4 " stride = 3;"),
            "d:2: layer a: stride 3 is no power of two");
    refused(CONV("a", "out = 4; kernel = 8;"), "d:2: layer a: kernel 8 is above 7");
    refused(OP("a", "max_pool", "stride = 8;"),
            "d:2: layer a: kernel 8 (the stride's, by default) is above 7");
    refused(CONV("a", OUT4 " stride = 4096;"),
            "d:2: layer a: tensor stride 1 times 4096 is above 2048");
    refused(
        OP("u", "conv_transpose", OUT4 " stride = 2;"),
        "d:2: layer u: stride 2 back from stride 1: no layer before it has the finer "
        "coordinates");
    refused(
        CONV("a", OUT4 " stride = 4;") ",\n" OP("u", "conv_transpose",
                                                OUT4 " stride = 2;"),
        "d:3: layer u: stride 2 back from stride 4: no layer before it has the finer "
        "coordinates");
    refused(OP("p", "avg_pool", "kernel = 1; stride = 1;"),
            "d:2: layer p: avg_pool of kernel 1 and stride 1 does nothing");
    refused(OP("p", "upsample", "stride = 1;"),
            "d:2: layer p: upsample of kernel 1 and stride 1 does nothing");
    refused(OP("p", "upsample", "stride = 2;"),
            "d:2: layer p: stride 2 back from stride 1: no layer before it has the finer "
            "coordinates");
    refused(OP("p", "upsample", "stride = 2; kernel = 2;"), "d:2: layer p: upsample takes no kernel");
    refused(OP("p", "upsample", ""), "d:2: layer p: upsample needs stride");
    refused(OP("p", "interpolate", "stride = 1;"),
            "d:2: layer p: interpolate of kernel 1 and stride 1 does nothing");
    refused(OP("p", "interpolate", "stride = 4;"),
            "d:2: layer p: stride 4 back from stride 1: no layer before it has the finer "
            "coordinates");
    refused(OP("p", "interpolate", "stride = 3;"),
            "d:2: layer p: stride 3 is no power of two");
}

/* 3 * 2^20 parameters, padded, then 27 * 2^40. */
TEST(sizes_that_no_machine_has)
{
    refused(CONV("a", "out = 1048576; kernel = 1;") ",\n" CONV(
                "b", "out = 1048576; kernel = 3;"),
            "d:3: layer b: with it the network has 29686817095680 parameters, above "
            "1099511627776");
}

TEST(ends)
{
    refused_as(SP_EDATA, CONV("a", "out = 5; kernel = 3;"),
               "d:2: layer a: the last layer has 5 channels, the data 4 classes");
    refused(CONV("a", OUT4 " stride = 2;"),
            "d:2: layer a: the last layer has to be on the voxels, at stride 1");
    refused(CONV("a", OUT4) ",\n" CONV("b", OUT4 " from = \"input\";"),
            "d:2: layer a: no layer reads it");
    refused_as(
        SP_EDATA,
        OP("a", "concat", "from = [\"input\", \"input\"];") "," OP("r", "relu", ""),
        "d:2: layer r: the last layer has 6 channels, the data 4 classes");
}

TEST(made_by_the_command_line)
{
    char *o[] = {"net.layers=({ name = \"a\"; op = \"rely\"; })"};
    CLOSED_BY(sp_config_destroy) sp_config c;
    CLOSED_BY(sp_graph_destroy) sp_graph g;

    OK(sp_config_read(&c, NULL, 1, o));
    assert_int_equal(sp_graph_build(&g, &c, 3, 4), SP_EUSAGE);
    assert_string_equal(
        sp_error_last()->message,
        "command line: layer a: unknown op \"rely\"; nearest is \"relu\"");
}
