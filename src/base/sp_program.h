/* Makes a process one of the project's programs, not a user of the library: its library
 * code reads variables of the environment (sp_env.h), and its log goes to the console
 * (sp_console.c). */
#ifndef SP_PROGRAM_H
#define SP_PROGRAM_H

#ifdef __cplusplus
extern "C" {
#endif

/* Called first by every main, and by the tests' main. name: begins messages, "sptrain"
 * or "spvox"; a string constant. Local. */
void sp_program_begin(const char *name);

#ifdef __cplusplus
}
#endif

#endif
