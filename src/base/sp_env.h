/* Variables of the environment. Library code reads them by sp_env, which knows none
 * unless the process is one of the project's programs: a library that other programs
 * link does not change what it does because of a variable. */
#ifndef SP_ENV_H
#define SP_ENV_H

#ifdef __cplusplus
extern "C" {
#endif

/* The value of a variable as getenv gives it; NULL if it is not set, and always in a
 * program that only uses the library. */
const char *sp_env(const char *name);
/* Makes sp_env read the environment, by getenv. Called once, by sp_program_begin. */
void sp_env_read_by(char *(*get)(const char *name));

#ifdef __cplusplus
}
#endif
#endif
