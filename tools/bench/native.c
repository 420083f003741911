/* The floor under a caching: what the kernel alone takes.
 *
 *   native create LIST DEST THREADS   create and write every file of LIST under DEST
 *   native link LIST FROM DEST        hard-link every file of LIST from FROM to DEST
 *
 * LIST has a line "SIZE PATH" a file, in depth-first order. Directories are made first; the
 * threads then take equal, contiguous parts, so that they seldom meet in one directory.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct file { size_t size; char *path; };
struct part { size_t from, to; };

static struct file *files;
static size_t count, largest;
static char *buffer;

static void die(const char *what) { perror(what); exit(1); }

static void read_list(const char *name) {
    FILE *list = fopen(name, "r");
    char *line = NULL;
    size_t room = 0, capacity = 0;
    ssize_t length;
    if (!list) die(name);
    while ((length = getline(&line, &room, list)) > 0) {
        char *space = strchr(line, ' ');
        if (line[length - 1] == '\n') line[length - 1] = 0;
        if (count == capacity) {
            capacity = capacity ? capacity * 2 : 4096;
            if (!(files = realloc(files, capacity * sizeof *files))) die("realloc");
        }
        files[count].size = strtoul(line, NULL, 10);
        files[count].path = strdup(space + 1);
        if (files[count].size > largest) largest = files[count].size;
        count++;
    }
    free(line);
    fclose(list);
}

static void make_parents(void) {
    char last[4096] = "";
    for (size_t i = 0; i < count; i++) {
        char *path = files[i].path, *slash = strrchr(path, '/');
        size_t length = slash ? (size_t)(slash - path) : 0;
        if (!length || (strlen(last) == length && !memcmp(last, path, length))) continue;
        memcpy(last, path, length);
        last[length] = 0;
        for (char *at = last; (at = strchr(at + 1, '/'));) {
            *at = 0;
            if (mkdir(last, 0755) && errno != EEXIST) die(last);
            *at = '/';
        }
        if (mkdir(last, 0755) && errno != EEXIST) die(last);
    }
}

static void *create(void *argument) {
    struct part *part = argument;
    for (size_t i = part->from; i < part->to; i++) {
        int fd = open(files[i].path, O_WRONLY | O_CREAT | O_EXCL, 0644);
        if (fd < 0) die(files[i].path);
        for (size_t done = 0; done < files[i].size;) {
            ssize_t n = write(fd, buffer + done, files[i].size - done);
            if (n < 0) die(files[i].path);
            done += (size_t)n;
        }
        if (close(fd)) die(files[i].path);
    }
    return NULL;
}

static void create_all(size_t threads) {
    pthread_t thread[64];
    struct part part[64];
    if (threads < 1 || threads > 64) { errno = EINVAL; die("threads"); }
    if (!(buffer = malloc(largest + 1))) die("malloc");
    memset(buffer, 'x', largest + 1);
    for (size_t i = 0; i < threads; i++) {
        part[i] = (struct part){count * i / threads, count * (i + 1) / threads};
        if (pthread_create(&thread[i], NULL, create, &part[i])) die("pthread_create");
    }
    for (size_t i = 0; i < threads; i++) pthread_join(thread[i], NULL);
}

static void link_all(int from) {
    for (size_t i = 0; i < count; i++)
        if (linkat(from, files[i].path, AT_FDCWD, files[i].path, 0)) die(files[i].path);
}

int main(int argc, char **argv) {
    int linking = argc == 5 && !strcmp(argv[1], "link"), from = -1;
    if (!linking && !(argc == 5 && !strcmp(argv[1], "create"))) {
        fprintf(stderr, "usage: native create LIST DEST THREADS | native link LIST FROM DEST\n");
        return 2;
    }
    const char *dest = linking ? argv[4] : argv[3];
    read_list(argv[2]);
    if (linking && (from = open(argv[3], O_RDONLY | O_DIRECTORY)) < 0) die(argv[3]);
    if (mkdir(dest, 0755) && errno != EEXIST) die(dest);
    if (chdir(dest)) die(dest);
    make_parents();
    if (linking) link_all(from);
    else create_all(strtoul(argv[4], NULL, 10));
    return 0;
}
