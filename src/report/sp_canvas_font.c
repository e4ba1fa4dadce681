#include "report/sp_canvas.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/sp_text.h"

/* The grid: cap height, and the room between two characters. */
enum { CAP = 16, BETWEEN = 5, BLANK = 8, POINTS = 24, PIECES = 6 };

/* Characters from ' ' to '~'. The first digit is the width. Strokes are divided by
 * blanks; a point is two digits of base 36, x and y. A stroke that begins with '~' is a
 * curve from its first to its last point that the points between them attract (a
 * quadratic B-spline); one that begins with '.' is such a curve that is closed. */
static const char *const glyphs[] = {
    /* space to '/' */
    "0", "0 000b 0g0g", "4 0004 4044", "a 402g 907g 05a5 0bab",
    "a ~93900008a8ag0g0d 505g", "c c00g .00505606 .7acacg7g", "b ~bg141080840a0g7gb9",
    "0 0004", "4 ~40040e4i", "4 ~00444e0i", "6 3038 0266 6206", "a 0aaa 555f", "1 1f0i",
    "6 0a6a", "0 0g0g", "8 800i",
    /* digits */
    "9 .00909g0g", "5 03505g", "9 ~040090980g 0g9g", "a ~0300909838 ~38a8ag0g0d",
    "a 7g700bab", "9 801007 ~0726969g0g0d", "9 .07979g0g ~0b006082", "9 00903g",
    "9 .10808717 .07979g0g", "9 .00909909 ~959g3g1e",
    /* ':' to '@' */
    "0 0707 0g0g", "1 1717 1f0i", "8 82098g", "a 08a8 0cac", "8 02890g",
    "8 ~040080874b 4g4g", "e .35959c3c ~959cece0000hbh",
    /* capitals */
    "a 0g50ag 2a8a", "a 000g ~005090985808 ~0858a8ag5g0g", "a ~a390000g9gad",
    "a 000g ~0040a0ag4g0g", "9 90000g9g 0878", "9 90000g 0878", "a ~a390000gaga9 a959",
    "a 000g a0ag 08a8", "0 000g", "7 ~707b7g0g0c", "9 000g 900a 379g", "8 000g8g",
    "c 0g006ac0cg", "a 0g00aga0", "a .00a0ag0g", "a 0g00 ~0050a0a95909",
    "a .00a0ag0g 6cbh", "a 0g00 ~0050a0a95909 59ag", "a ~93900008a8ag0g0d",
    "a 00a0 505g", "a ~000b0gagaba0", "a 005ga0", "e 003g73bge0", "a 00ag a00g",
    "a 0058a0 585g", "a 00a00gag",
    /* '[' to '`' */
    "4 40000i4i", "8 008i", "4 00404i0i", "a 0550a5", "a 0iai", "3 0033",
    /* small letters */
    "8 .05858g0g 858g", "8 000g .05858g0g", "8 ~8875050g7g8d", "8 808g .05858g0g",
    "8 0a8a ~8a85050g7g8e", "6 ~6020252g 0555", "8 .05858g0g ~858g8l0l1j",
    "8 000g ~0a05858a8g", "0 050g 0101", "3 ~353h3l0l 3131", "8 000g 750b 398g",
    "0 000g", "c 050g ~0a05656a6g ~6a65c5cacg", "8 050g ~0a05858a8g", "8 .05858g0g",
    "8 050l .05858g0g", "8 858l .05858g0g", "5 050g ~0a0555", "7 ~7775050a7b7g0g0e",
    "6 ~212b2g6g 0565", "8 ~050b0g8g8b85 858g", "8 054g85", "c 053g679gc5",
    "8 058g 850g", "8 054g 852l", "8 05850g8g",
    /* '{' to '~' */
    "5 ~5020280909 ~09092a2i5i", "0 000i", "5 ~0030385959 ~59593a3i0i", "a ~0b367ea9"};
_Static_assert(sizeof glyphs / sizeof *glyphs == '~' - ' ' + 1, "a glyph each");

static const char box[] = "8 00808g0g00";

/* The letters of Latin-1 from U+00C0 on: base letter and accent. */
static const char latin_base[] =
    "AAAAAAACEEEEIIIIDNOOOOOxOUUUUYPsaaaaaaaceeeeiiiidnooooo-ouuuuypy";
static const char latin_accent[] =
    "`'^~:o ,`'^:`'^: ~`'^~: /`'^:'  `'^~:o ,`'^:`'^: ~`'^~: /`'^:' :";

/* One character: its strokes, and the accent upon it or ' '. */
typedef struct character {
    const char *strokes;
    char accent;
    bool is_capital;
} character;

/* Removes and returns the next character of the text. */
static character next_character(const char **text)
{
    const unsigned char *at = (const unsigned char *)*text;
    const size_t n = sp_text_character(*text);
    character c = {box, ' ', true};

    *text += n ? n : 1;
    if (n == 0 || *at < ' ' || *at == 0x7f)
        c.strokes = glyphs['?' - ' '];
    else if (n == 1)
        c.strokes = glyphs[*at - ' '];
    else if (n == 2 && at[0] == 0xc3) {
        const int i = at[1] - 0x80;

        c.strokes = glyphs[latin_base[i] - ' '];
        c.accent = latin_accent[i];
        c.is_capital = i < 0x20;
    } else if (n == 2 && at[0] == 0xc2 && at[1] == 0xb7)
        c.strokes = "0 0a0a"; /* a dot at half height */
    return c;
}

static int digit(char c)
{
    return c >= 'a' ? c - 'a' + 10 : c - '0';
}

static int font_advance(const char *strokes)
{
    return strokes == glyphs[0] ? BLANK : digit(strokes[0]) + BETWEEN;
}

double sp_font_width(const char *text, double cap)
{
    int units = 0;

    assert(text && cap > 0);
    while (*text)
        units += font_advance(next_character(&text).strokes);
    return units ? (units - BETWEEN) * cap / CAP : 0;
}

/* ---- strokes ---- */

typedef struct point {
    double x, y;
} point;

/* A stroke as a chain of straight pieces, in pixels. */
typedef struct chain {
    int n;
    point at[POINTS * PIECES];
} chain;

static point middle(point a, point b)
{
    return (point){(a.x + b.x) / 2, (a.y + b.y) / 2};
}

/* Appends a quadratic curve from `a` to `b` with control point c. */
static void font_add_curve(chain *to, point a, point c, point b)
{
    for (int i = 1; i <= PIECES; i++) {
        const double t = (double)i / PIECES, s = 1 - t;

        to->at[to->n++] = (point){s * s * a.x + 2 * s * t * c.x + t * t * b.x,
                                  s * s * a.y + 2 * s * t * c.y + t * t * b.y};
    }
}

static void font_smooth(chain *to, const point *p, int n, bool is_closed)
{
    const int inner = is_closed ? n : n - 2;
    point from;

    assert(n >= 3);
    from = is_closed ? middle(p[n - 1], p[0]) : p[0];
    to->n = 0;
    to->at[to->n++] = from;
    for (int i = 0; i < inner; i++) {
        const point control = is_closed ? p[i] : p[i + 1];
        const point end = is_closed    ? middle(p[i], p[(i + 1) % n])
                          : i == n - 3 ? p[n - 1]
                                       : middle(p[i + 1], p[i + 2]);

        font_add_curve(to, from, control, end);
        from = end;
    }
}

static double distance(point p, point a, point b)
{
    const double dx = b.x - a.x, dy = b.y - a.y, length = dx * dx + dy * dy;
    double t = length > 0 ? ((p.x - a.x) * dx + (p.y - a.y) * dy) / length : 0;

    t = t < 0 ? 0 : t > 1 ? 1 : t;
    return hypot(p.x - a.x - t * dx, p.y - a.y - t * dy);
}

/* Steps of the pen's edge, few so that a picture keeps to a palette. */
enum { EDGE = 5 };

/* Paints every pixel by its distance from the chain. */
static void font_paint(sp_canvas *canvas, const chain *line, double pen,
                       sp_colour colour)
{
    double x0 = INFINITY, y0 = INFINITY, x1 = -INFINITY, y1 = -INFINITY;

    for (int i = 0; i < line->n; i++) {
        x0 = fmin(x0, line->at[i].x);
        x1 = fmax(x1, line->at[i].x);
        y0 = fmin(y0, line->at[i].y);
        y1 = fmax(y1, line->at[i].y);
    }
    for (int y = (int)floor(y0 - pen); y <= (int)(y1 + pen) + 1; y++)
        for (int x = (int)floor(x0 - pen); x <= (int)(x1 + pen) + 1; x++) {
            const point centre = {x + 0.5, y + 0.5};
            double d = INFINITY, share;

            for (int i = 0; i + 1 < line->n; i++)
                d = fmin(d, distance(centre, line->at[i], line->at[i + 1]));
            share = fmin(pen + 0.5 - d, 1);
            share = floor(share * EDGE + 0.5) / EDGE;
            sp_canvas_blend(canvas, x, y, colour, (float)share);
        }
}

/* Draws the strokes of one glyph with their origin at (x, y), which is the left edge at
 * cap height. */
static void draw_strokes(sp_canvas *canvas, const char *strokes, double x, double y,
                         double unit, sp_colour colour)
{
    const double pen = fmax(unit * 0.95, 0.6);

    for (const char *at = strchr(strokes, ' '); at; at = strchr(at, ' ')) {
        const char kind = *++at;
        point p[POINTS];
        chain line = {0};
        int n = 0;

        for (at += kind == '~' || kind == '.'; *at && *at != ' '; at += 2)
            p[n++] = (point){x + digit(at[0]) * unit, y + digit(at[1]) * unit};
        if (kind == '~' || kind == '.')
            font_smooth(&line, p, n, kind == '.');
        else
            for (line.n = 0; line.n < n; line.n++)
                line.at[line.n] = p[line.n];
        font_paint(canvas, &line, pen, colour);
    }
}

/* Accents on a grid of their own with its lower edge at y = 4. */
static const char accents[] = "`'^~:o";
static const char *const accent_strokes[] = {
    "4 0043", "4 4003", "6 043064", "6 ~03204261", "6 1212 5252", "4 .00404404"};

static void draw_accent(sp_canvas *canvas, character c, double x, double y, double unit,
                        sp_colour colour)
{
    const char *accent = strchr(accents, c.accent);
    const char *strokes = accent ? accent_strokes[accent - accents] : NULL;
    const int width = digit(c.strokes[0]);

    if (strokes)
        draw_strokes(canvas, strokes, x + (width - digit(strokes[0])) / 2.0 * unit,
                     y + (c.is_capital ? -6 : -2) * unit, unit, colour);
    else if (c.accent == ',')
        draw_strokes(canvas, "2 2g0k", x + (width / 2.0 - 1) * unit, y, unit, colour);
    else if (c.accent == '/')
        draw_strokes(canvas, "8 820g", x, y, unit, colour);
}

double sp_font_draw(sp_canvas *canvas, double x, double y, double cap, double most,
                    sp_colour colour, const char *text)
{
    const double unit = cap / CAP, begin = x;
    const bool is_cut = most > 0 && sp_font_width(text, cap) > most;
    const double room = most - sp_font_width(" ...", cap);

    assert(canvas->pixel && text && cap > 0);
    while (*text) {
        const character c = next_character(&text);

        if (is_cut && x + font_advance(c.strokes) * unit - begin > room)
            break;
        draw_strokes(canvas, c.strokes, x, y - cap, unit, colour);
        draw_accent(canvas, c, x, y - cap, unit, colour);
        x += font_advance(c.strokes) * unit;
    }
    if (is_cut)
        return x - begin + sp_font_draw(canvas, x, y, cap, 0, colour, "...");
    return x - begin;
}
