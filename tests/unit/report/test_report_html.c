/* A report is well-formed whatever the run folder holds: every tag is closed, names are
 * text, nothing is fetched from elsewhere, its numbers are those of metrics.jsonl. */
#include "fixtures/test.h"

#include <ctype.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sp_file.h"
#include "base/sp_json.h"
#include "report/sp_history.h"
#include "report/sp_report.h"

static char run_dir[2][16], html_path[16], csv_path[16];
static char *page; /* the last one written */

/* ---- folders ---- */

static void put(int run, const char *name, const char *text)
{
    char path[128];

    snprintf(path, sizeof path, "%s/%s", run_dir[run], name);
    OK(sp_file_make_folder_of(path));
    OK(sp_file_replace(path, text, strlen(text), 0));
}

static void new_runs(void)
{
    static int number;

    for (int i = 0; i < 2; i++) {
        snprintf(run_dir[i], sizeof run_dir[i], "%d/run%d", number, i);
        OK(sp_file_make_folder(run_dir[i]));
    }
    snprintf(html_path, sizeof html_path, "%d/out.html", number);
    snprintf(csv_path, sizeof csv_path, "%d/out.csv", number);
    number++;
}

/* ---- the checker ---- */

/* Elements without an end. */
static bool is_missing(const char *name)
{
    return strcmp(name, "meta") == 0 || strcmp(name, "img") == 0 ||
           strcmp(name, "br") == 0 || strcmp(name, "!DOCTYPE") == 0;
}

/* Passes over the attributes of a tag; returns where '>' or "/>" is. All values are in
 * double quotes and hold no '<'. */
static const char *pass_attributes(const char *at)
{
    while (*at != '>' && strncmp(at, "/>", 2) != 0) {
        assert_true(*at && *at != '<');
        if (*at != '"') {
            at++;
            continue;
        }
        assert_true(at[-1] == '=');
        for (at++; *at != '"'; at++)
            if (!*at || *at == '<' || *at == '>')
                fail_msg("in an attribute: %.60s", at);
        at++;
        assert_true(*at == ' ' || *at == '>' || *at == '/');
    }
    return at;
}

static void check_entity(const char *at)
{
    const char *end = at + 1;

    while (isalnum((unsigned char)*end) || *end == '#')
        end++;
    if (*end != ';')
        fail_msg("a bare &: %.40s", at);
}

/* Demands that every tag is closed by its own name, in the right order. */
static void check_tags(const char *text)
{
    static char open[64][16];
    int depth = 0;

    for (const char *at = text; *at; at++) {
        char name[16] = "";
        bool is_end;

        if (*at == '&')
            check_entity(at);
        if (*at != '<')
            continue;
        is_end = at[1] == '/';
        at += 1 + is_end;
        if (sscanf(at, "%15[!A-Za-z0-9]", name) != 1)
            fail_msg("no tag: %.40s", at);
        at = pass_attributes(at + strlen(name));
        if (is_end) {
            if (depth == 0 || strcmp(open[depth - 1], name) != 0)
                fail_msg("</%s> closes <%s>", name,
                         depth ? open[depth - 1] : "nothing");
            depth--;
        } else if (*at == '/')
            at++;
        else if (!is_missing(name)) {
            assert_true(depth < 64);
            strcpy(open[depth++], name);
            if (strcmp(name, "style") == 0 || strcmp(name, "script") == 0)
                at =
                    strstr(at, strcmp(name, "style") == 0 ? "</style" : "</script") - 1;
        }
    }
    assert_int_equal(depth, 0);
}

static int count(const char *text, const char *what)
{
    int n = 0;

    for (const char *at = text; (at = strstr(at, what)); at += strlen(what))
        n++;
    return n;
}

/* Nothing is fetched: the only addresses are pictures within the page. */
static void check_alone(const char *text)
{
    assert_null(strstr(text, "http"));
    assert_null(strstr(text, "@import"));
    assert_null(strstr(text, "url("));
    assert_null(strstr(text, "<link"));
    assert_int_equal(count(text, " src=\""),
                     count(text, " src=\"data:image/png;base64,"));
    assert_int_equal(count(text, "<script"), 1);
    assert_int_equal(count(text, "<style"), 1);
}

static void report(int n)
{
    char *const dirs[] = {run_dir[0], run_dir[1]};
    size_t bytes;

    OK(sp_report_write(html_path, n, dirs, true));
    page = test_content(html_path, &bytes);
    assert_int_equal(strlen(page), bytes);
    assert_true(bytes < 3000000);
    check_tags(page);
    check_alone(page);
}

static void report_of(const char *metrics)
{
    put(0, "metrics.jsonl", metrics);
    report(1);
}

static void shows(const char *text)
{
    if (!strstr(page, text))
        fail_msg("the page lacks: %s", text);
}

static void shows_not(const char *text)
{
    if (strstr(page, text))
        fail_msg("the page has: %s", text);
}

/* ---- runs ---- */

#define START                                                                          \
    "{\"event\":\"start\",\"step\":0,\"version\":\"0.1.0\",\"mpi\":\"an MPI\","        \
    "\"hdf5\":\"1.10.8\",\"processor\":\"a "                                           \
    "<b>processor</b>\",\"ranks\":2,\"nodes\":1,"                                      \
    "\"device\":\"cpu\",\"precision\":\"fp32\",\"deck_hash\":\"00\",\"transport_"      \
    "text\""                                                                           \
    ":\"an MPI's sums\",\"parameters\":1234567}\n"
#define STEP(n, loss)                                                                  \
    "{\"event\":\"step\",\"step\":" #n ",\"epoch\":1,\"samples\":4,\"loss\":" #loss    \
    ",\"lr\":0.1,\"voxels\":1000,\"step_s\":0.5,\"data_wait_s\":0.125,"                \
    "\"comm_exposed_s\":0.0625,\"imbalance\":1.25}\n"
#define EVAL                                                                           \
    "{\"event\":\"eval\",\"step\":3,\"epoch\":1,\"samples\":2,\"voxels\":100,"         \
    "\"loss\":0.5,\"accuracy\":0.75,\"miou\":0.4375,\"iou\":{\"ground\":0.625,"        \
    "\"tree\":0.25,\"none\":null},\"confusion\":[[50,10,0],[15,25,0],[0,0,0]]}\n"

#define END "{\"event\":\"end\",\"total_s\":2.5}\n"

#define RUNS_TEST(name) TEST_AFTER(new_runs, name)

RUNS_TEST(numbers_are_those_of_the_lines)
{
    report_of(START STEP(1, 1.5) STEP(2, 1.25) STEP(3, 0.8125) EVAL);
    shows_not("<th>merged IoU</th>");
    shows("data-p=\"1,1.5 2,1.25 3,0.8125\"");
    shows("<td>0.6250<span"); /* IoU */
    shows("<td>0.4375<span");
    shows("mean IoU over voxels, best, at step 3, epoch 1</div>");
    shows("<td>0.7692</td>"); /* precision of ground: 50 of 65 */
    shows("<td>0.8333</td>"); /* recall: 50 of 60 */
    shows("<td>&ndash;<span");
    shows("1&#8239;234&#8239;567");
    shows("25.0 %"); /* data_wait_s of step_s */
    /* A cell of the confusion matrix: row, column, count, share. */
    shows("title=\"ground&#10;&rarr; tree&#10;10 voxels, 16.67 "
          "%\">17<small>10</small></i>");
    shows("<li>tree &rarr; ground: 15</li><li>ground &rarr; tree: 10</li></ul>");
    shows("1.25 times the mean share");
    shows("a &lt;b&gt;processor&lt;/b&gt;</td><td>fp32</td><td>an MPI&#39;s sums</td>");
    assert_string_equal(
        test_content(csv_path, NULL),
        "run,step,epoch,unit,class,count,predicted,iou,precision,recall,"
        "merged_iou\r\n"
        "\"run0\",3,1,voxels,\"ground\",60,65,0.625,0.76923076923076927,"
        "0.83333333333333337,\r\n"
        "\"run0\",3,1,voxels,\"tree\",40,35,0.25,0.7142857142857143,0.625,\r\n"
        "\"run0\",3,1,voxels,\"none\",0,0,,,,\r\n");
}

/* A start that was killed has no end, and its time is not known. */
RUNS_TEST(time_is_of_starts_that_ended)
{
    report_of(START STEP(1, 1.5) START END);
    shows("<dd>2.5 s in 1 of 2 starts</dd>");
    report_of(START STEP(1, 1.5) END START END);
    shows("<dd>5 s in 2 starts</dd>");
    report_of(START END);
    shows("<dd>2.5 s</dd>");
}

RUNS_TEST(starts_totals_and_memory)
{
    report_of(START "{\"event\":\"resume\",\"step\":3,\"ranks\":4,\"nodes\":2}\n"
                    "{\"event\":\"step\",\"step\":4,\"step_s\":1,\"memory_bytes\":"
                    "3145728}\n{\"event\":\"end\",\"total_s\":125,\"eval_s\":3725}\n");
    shows("<tr><td>begun</td><td>0</td><td>2 on 1</td>");
    shows("<tr><td>continued</td><td>3</td><td>4 on 2</td><td></td>");
    shows("<li>in all 2 min 05 s</li><li>evaluation 1 h 02 min</li></ul>");
    shows("took 3 MiB of memory");
}

RUNS_TEST(validation_sets_and_pictures)
{
    put(0, "pictures/best-truth-top.png", "\x89PNG\r\n\x1a\n<\xc3?");
    put(0, "pictures/pictures.json",
        "{\"samples\":[{\"which\":\"best\",\"name\":\"<s>\",\"miou\":0.5,"
        "\"voxels\":4321},{\"which\":\"../x\"}]}");
    report_of("{\"event\":\"eval\",\"step\":3,\"miou\":0.5,\"iou\":{\"x\":0.5},"
              "\"confusion\":[[4]],\"sets\":{\"<i>\":{\"samples\":2,\"loss\":1.5,"
              "\"miou\":0.375}}}\n");
    shows("<tr><td>&lt;i&gt;</td><td>2</td><td>1.5000</td><td>&ndash;</td>"
          "<td>0.3750</td><td>&ndash;</td><td>&ndash;</td></tr>");
    shows("The best sample: mean IoU 0.5000 <small>&lt;s&gt;, 4&#8239;321 voxels");
    shows("view\" src=\"data:image/png;base64,iVBORw0KGgo8wz8=\">");
    assert_int_equal(count(page, "this picture cannot be read"), 5);
}

/* Merged numbers stand beside the plain ones of the same unit. */
RUNS_TEST(merged_predictions)
{
    report_of("{\"event\":\"eval\",\"step\":3,\"miou\":0.25,\"iou\":{\"x\":0.25},"
              "\"confusion\":[[4]],\"point_miou\":0.5,\"point_iou\":{\"x\":0.5},"
              "\"point_confusion\":[[8]],\"merged\":{\"views\":1,\"blocks\":true,"
              "\"point_miou\":0.5625,\"point_iou\":{\"x\":0.5625}}}\n");
    shows("<th>IoU</th><th>merged IoU</th>");
    assert_int_equal(count(page, "<td>0.5625<span"), 2); /* of the class, mean */
    assert_non_null(
        strstr(test_content(csv_path, NULL), ",points,\"x\",8,8,0.5,1,1,0.5625\r\n"));
}

/* A quantity that was always zero is drawn on the axis, and no time is below it. */
RUNS_TEST(zeros_have_an_axis_from_zero)
{
    report_of("{\"event\":\"step\",\"step\":1,\"step_s\":0.5,\"data_wait_s\":0}\n"
              "{\"event\":\"step\",\"step\":2,\"step_s\":0.5,\"data_wait_s\":0}\n");
    shows("data-p=\"1,0 2,0\"");
    shows_not("e-09");
}

RUNS_TEST(evaluations_of_other_checkpoints)
{
    put(0, "evaluations.jsonl",
        "{\"event\":\"eval\",\"time\":\"2026-01-02T03:04:05Z\",\"checkpoint\":"
        "\"a&b.h5\",\"step\":7,\"samples\":2,\"accuracy\":0.875,\"miou\":0.5,"
        "\"iou\":{\"x\":0.5},\"confusion\":[[4]]}\n");
    report(1);
    shows("by sptrain eval of a&amp;b.h5");
    shows("mean IoU over voxels, at step 7</div>"); /* no best of one training */
    shows("<tr><td>2026-01-02T03:04:05Z</td><td>7</td><td>2</td><td>0.8750</td>"
          "<td>0.5000</td><td>&ndash;</td><td>&ndash;</td><td>a&amp;b.h5</td></tr>");
}

RUNS_TEST(a_run_that_has_just_begun)
{
    report_of("");
    shows("No step has been logged.");
    shows("No evaluation has been finished.");
    shows("no evaluation yet");
    report_of(START);
    report_of(START STEP(1, null));
    report_of(START STEP(1, 2.5));
    shows("data-p=\"1,2.5\"");
}

RUNS_TEST(damaged_lines_are_said_and_skipped)
{
    put(0, "metrics.jsonl",
        START "{\"event\":\"step\",\n" STEP(
            2, 1.25) "[1,2]\n{}\n\n"
                     "{\"event\":\"eval\",\"step\":3,\"confusion\":[[1,2],[3]]}\n"
                     "{\"event\":\"eval\",\"step\":3,\"confusion\":[[1,-2],[3,4]]}\n"
                     "{\"event\":\"eval\",\"step\":3,\"confusion\":"
                     "[[9223372036854775807,0],[1,0]]}\n"
                     "{\"event\":\"of tomorrow\"}\n" EVAL "{\"event\":\"step\",\"st");
    put(0, "status.json", "{\"state\":");
    put(0, "heartbeat.bin", "short");
    put(0, "deck.resolved", "no = deck");
    put(0, "pictures/pictures.json", "[]");
    report(1);
    shows("metrics.jsonl: line 2 was skipped: it is no JSON.");
    shows("metrics.jsonl: line 4 was skipped: it is no JSON object.");
    shows("metrics.jsonl: line 5 was skipped: it has no &quot;event&quot;.");
    shows("line 7 was skipped: its confusion matrix");
    shows("2 more lines were skipped.");
    shows("metrics.jsonl: line 12 is incomplete and was skipped.");
    shows("status.json cannot be read");
    shows("heartbeat.bin cannot be read");
    shows("deck.resolved cannot be read");
    shows("pictures.json cannot be read");
    shows("data-p=\"2,1.25\"");
    shows("0.4375");
}

/* Numbers that no run writes end neither the page nor the program's patience. */
RUNS_TEST(numbers_of_any_size)
{
    static const char *const lines[] = {
        STEP(100000000000000000, 1.5) STEP(100000000000000016, 1.5),
        STEP(1, 1e308) STEP(2, -1e308),
        STEP(-9007199254740993, 1e-308) STEP(5, 2e-308),
        STEP(1, 1e16) STEP(2, 10000000000000002),
        "{\"event\":\"step\",\"step\":1e308,\"loss\":1}\n"
        "{\"event\":\"step\",\"step\":-1e308,\"loss\":2,\"step_s\":-5}\n",
        "{\"event\":\"step\",\"step\":\"x\",\"loss\":[]}\n"
        "{\"event\":\"end\",\"total_s\":1e300}\n"
        "{\"event\":\"eval\",\"step\":null,\"samples\":1e300,\"miou\":7,"
        "\"iou\":{\"a\":-3},\"confusion\":[[9223372036854775807]]}\n"};

    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        report_of(lines[i]);
}

/* Two steps, and an evaluation of n classes with an IoU for each name. */
static void put_eval(const char *const *names, int n_names, int n)
{
    CLOSED_BY(sp_json_destroy) sp_json json = {0};
    const char *line;
    FREED char *text;

    sp_json_begin(&json);
    sp_json_text(&json, "event", "eval");
    sp_json_int(&json, "step", 3);
    sp_json_double(&json, "miou", 0.5);
    sp_json_begin_object(&json, "iou");
    for (int i = 0; i < n_names; i++)
        sp_json_double(&json, names[i], 0.5);
    sp_json_end_object(&json);
    sp_json_begin_array(&json, "confusion");
    for (int i = 0; i < n; i++) {
        sp_json_begin_array(&json, NULL);
        for (int k = 0; k < n; k++)
            sp_json_int(&json, NULL, 1 + i + k);
        sp_json_end_array(&json);
    }
    sp_json_end_array(&json);
    OK(sp_json_end(&json, &line));
    assert_true(asprintf(&text, "%s%s\n", START STEP(1, 1) STEP(2, 2), line) > 0);
    put(0, "metrics.jsonl", text);
}

RUNS_TEST(hostile_names_are_text)
{
    char longest[201] = "";
    const char *const names[] = {
        "<script>alert(1)</script>",
        "\"onmouseover=\"alert(1)",
        "'><img src=x>",
        "]]>-->&amp;",
        "\xe6\xa4\x8d\xe7\x94\x9f \xd9\x86\xd8\xa8\xd8\xa7\xd8\xaa",
        "\xe2\x80\xae"
        "desrever",
        "=HYPERLINK(1)\n\x1b[31m",
        longest};
    enum { N = sizeof names / sizeof *names };
    const char *csv;

    memset(longest, '<', 200);
    put_eval(names, N, N);
    put(0, "status.json", "{\"state\":\"<i>\",\"message\":\"</dd><script>\"}");
    report(1);
    shows("&lt;script&gt;alert(1)&lt;/script&gt;");
    shows("&quot;onmouseover=&quot;alert(1)");
    shows("&#39;&gt;&lt;img src=x&gt;");
    shows("]]&gt;--&gt;&amp;amp;");
    shows(names[4]);
    shows("\\xe2\\x80\\xaedesrever");
    shows("&lt;/dd&gt;&lt;script&gt;");
    shows_not("\x1b");
    shows_not("alert(1)</script>");
    csv = test_content(csv_path, NULL);
    assert_non_null(strstr(csv, ",\"'=HYPERLINK(1) "));
    assert_non_null(strstr(csv, ",\"\"\"onmouseover=\"\"alert(1)\","));
}

RUNS_TEST(two_runs_with_their_differences_first)
{
    put(0, "metrics.jsonl", START STEP(1, 1.5) STEP(2, 1.25) EVAL);
    put(1, "metrics.jsonl", START STEP(1, 1.75) STEP(2, 0.5) EVAL);
    put(0, "deck.resolved", "train : { lr = 0.1; epochs = 7; };");
    put(1, "deck.resolved", "train : { lr = 0.25; epochs = 7; };");
    report(2);
    shows("2 runs compared");
    shows("<tr><td>train.lr</td><td>0.1</td><td>0.25</td></tr>");
    shows_not("<td>train.epochs</td>");
    shows("data-n=\"run1\" data-p=\"1,1.75 2,0.5\"");
    shows("data-n=\"run1\" data-p=\"3,0.625\""); /* IoU of ground */
    assert_true(strstr(page, "Differences of the decks") <
                strstr(page, "<h2>Training"));
}

RUNS_TEST(classes_of_many_and_of_one_name)
{
    static const char *const same = "same"; /* all classes have this name */

    put_eval(&same, 1, 60);
    report(1);
    shows("60 classes are too many to draw");
    shows("class 59");
}

RUNS_TEST(folders_that_are_no_run)
{
    char *const missing[] = {"/nonexistent/run"}, *const empty[] = {run_dir[0]};

    assert_int_equal(sp_report_write(html_path, 1, missing, true), SP_EIO);
    FAILS(sp_report_write(html_path, 1, empty, true), SP_EIO, "no run in it");
    assert_int_equal(access(html_path, F_OK), -1);
}

RUNS_TEST(a_long_run_keeps_its_peaks)
{
    enum { N = 20000 };
    char *text = malloc(N * 80), *at = text;

    for (int i = 1; i <= N; i++)
        at += sprintf(at, "{\"event\":\"step\",\"step\":%d,\"loss\":%s}\n", i,
                      i == 12345 ? "77.5" : "1.5");
    put(0, "metrics.jsonl", text);
    free(text);
    report(1);
    shows("12345,77.5");
    assert_true(strlen(page) < 200000);
}
