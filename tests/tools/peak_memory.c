/* peak_memory FILE COMMAND...: runs the command, writes the MiB that the largest of its
 * processes had in memory to FILE, and ends with its status. */
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    struct rusage usage;
    int status = 0;
    FILE *file;
    pid_t child;

    if (argc < 3)
        return 2;
    child = fork();
    if (child == 0) {
        execvp(argv[2], argv + 2);
        _exit(127);
    }
    if (child < 0 || waitpid(child, &status, 0) != child)
        return 1;
    getrusage(RUSAGE_CHILDREN, &usage);
    file = fopen(argv[1], "w");
    if (!file || fprintf(file, "%ld\n", usage.ru_maxrss / 1024) < 0 ||
        fclose(file) != 0)
        return 1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
