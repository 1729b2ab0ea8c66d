/* The program around the step: .npy files in, steps, .npy files out. Generated before this: struct port inputs[],
   outputs[] with what they hold, connect(), step(), and the weights. */

static int fail(const char *what, const char *name, const char *expected, const char *received, const char *todo) {
  fprintf(stderr, "%s %s\n  expected: %s\n  received: %s\n  what to do: %s\n", what, name, expected, received, todo);
  return 0;
}

static void words_of(const struct port *p, char *text, size_t room) {
  size_t at = (size_t)snprintf(text, room, "%c%d (", p->kind, p->size);
  for (int d = 0; d < p->dims && at < room; ++d)
    at += (size_t)snprintf(text + at, room - at, "%s%ld", d ? ", " : "", p->shape[d]);
  if (at < room) snprintf(text + at, room - at, ")%s", p->levels ? " at most, with lengths" : "");
}

/* What a .npy file says of its array: type, dims. Returns 0 if it is none that can be read here. */
static int read_head(FILE *f, char *kind, int *size, int *dims, long shape[]) {
  unsigned char start[12];
  size_t length;
  if (fread(start, 1, 10, f) != 10 || memcmp(start, "\x93NUMPY", 6)) return 0;
  length = start[8] + 256u * start[9];
  if (start[6] > 1) {
    if (fread(start + 10, 1, 2, f) != 2 || start[10] || start[11]) return 0;
  }
  char *text = malloc(length + 1);
  if (!text) return 0;
  int good = fread(text, 1, length, f) == length;
  text[length] = 0;
  const char *descr = good ? strstr(text, "'descr':") : NULL, *dim = good ? strstr(text, "'shape':") : NULL;
  good = descr && dim && strstr(text, "'fortran_order': False");
  if (good) {
    for (descr += 8; *descr == ' ' || *descr == '\''; ++descr) {
    }
    good = *descr == '<' || *descr == '|';
  }
  if (good) {
    *kind = descr[1];
    *size = atoi(descr + 2);
    for (dim += 8; *dim == ' ' || *dim == '('; ++dim) {
    }
    for (*dims = 0; *dim >= '0' && *dim <= '9' && good;) {
      char *end;
      if (*dims == MOST_DIMS) good = 0;
      else shape[(*dims)++] = strtol(dim, &end, 10), dim = end;
      while (good && (*dim == ',' || *dim == ' ' || *dim == 'L')) ++dim;
    }
  }
  free(text);
  return good;
}

/* A buffer of an array in a file: data of `count` elements of the type, at most; the leading size in *rows. */
static int read_array(const char *folder, const struct port *p, const char *suffix, long number, void *data, long count,
                      int fixed, long *rows) {
  char path[4096], numbered[64], expected[256], received[256];
  FILE *f = NULL;
  if (number >= 0) {
    snprintf(numbered, sizeof numbered, ".%ld", number);
    if (snprintf(path, sizeof path, "%s/%s%s%s.npy", folder, p->file, suffix, numbered) < (int)sizeof path)
      f = fopen(path, "rb");
  }
  if (!f && snprintf(path, sizeof path, "%s/%s%s.npy", folder, p->file, suffix) < (int)sizeof path)
    f = fopen(path, "rb");
  words_of(p, expected, sizeof expected);
  if (!f) return fail("no file for input", p->name, expected, path, "write it there with numpy.save");
  struct port found = {0};
  long total = 1;
  int good = read_head(f, &found.kind, &found.size, &found.dims, found.shape);
  for (int d = 0; good && d < found.dims; ++d) {
    good = found.shape[d] >= 0 && (found.shape[d] == 0 || total <= count / found.shape[d] + 1);
    total *= found.shape[d];
  }
  words_of(&found, received, sizeof received);
  const int integers = *suffix != 0;
  if (!good) snprintf(received, sizeof received, "a file that is no .npy array of C order, or too large a one");
  good = good && (integers ? found.kind == 'i' && found.size == 8 && found.dims == 1
                           : found.kind == p->kind && found.size == p->size && found.dims == p->dims);
  for (int d = fixed ? 0 : 1; good && !integers && d < p->dims; ++d) good = found.shape[d] == p->shape[d];
  good = good && total <= count;
  if (!good) {
    fclose(f);
    if (integers) snprintf(expected, sizeof expected, "i8 (%ld)%s", count, fixed ? "" : " at most");
    return fail("wrong array for input", p->name, expected, received, "save what numpy.save writes of such an array");
  }
  const size_t size = integers ? 8 : (size_t)p->size;
  good = fread(data, size, (size_t)total, f) == (size_t)total;
  fclose(f);
  *rows = found.dims ? found.shape[0] : 1;
  return good || fail("cut off: the file of input", p->name, expected, path, "write it again");
}

/* Sequences: the rows, their lengths by level; what is beyond them repeats the first row and the last offset. */
static int read_ragged(const char *folder, const struct port *p, long number, long row) {
  long rows, count, above = -1;
  char *data = p->data;
  if (!read_array(folder, p, "", number, data, row * p->shape[0], 0, &rows)) return 0;
  const size_t bytes = (size_t)(row * p->size);
  if (!rows) memset(data, 0, bytes);
  for (long r = rows ? rows : 1; r < p->shape[0]; ++r) 
    memcpy(data + (size_t)r * bytes, data, bytes);
  for (int level = 0; level < p->levels; ++level) {
    const long room = p->level_size[level] - 1;
    int64_t *lengths = malloc((size_t)(room + 1) * sizeof *lengths);
    char suffix[32], got[96], wanted[96];
    snprintf(suffix, sizeof suffix, level ? ".lengths%d" : ".lengths", level);
    if (!lengths) return fail("no memory for", p->name, "some", "none", "free some");
    if (!read_array(folder, p, suffix, number, lengths, room, level == 0, &count)) {
      free(lengths);
      return 0;
    }
    int32_t *to = p->level[level];
    int64_t sum = 0;
    int good = level ? count == above : count == room;
    to[0] = 0;
    for (long i = 0; i < count && good; ++i) {
      good = lengths[i] >= 0 && lengths[i] <= p->longest[level] && lengths[i] <= INT32_MAX - sum;
      if (good) to[i + 1] = (int32_t)(sum += lengths[i]);
    }
    for (long i = count; i < room; ++i) to[i + 1] = to[count];
    free(lengths);
    snprintf(got, sizeof got, "%ld lengths, sum %ld, level %d", count, (long)sum, level);
    snprintf(wanted, sizeof wanted, "%ld lengths of at most %ld", level ? above : room, p->longest[level]);
    if (!good) return fail("wrong lengths for input", p->name, wanted, got, "convert with more --rows, or mend them");
    above = (long)sum;
  }
  if (above != rows) return fail("lengths that do not fit the rows of input", p->name, "their sum", "others", "mend them");
  if (p->rows) *(int32_t *)p->rows = (int32_t)rows;
  return 1;
}

static long integer_at(const void *data, int size, long at) {
  return size == 4 ? (long)((const int32_t *)data)[at] : (long)((const int64_t *)data)[at];
}

static int write_array(const char *folder, const struct port *p, const char *suffix, long number, const void *data,
                       char kind, int size, int dims, const long shape[]) {
  char path[4096], head[512], numbered[64] = "";
  if (number >= 0) snprintf(numbered, sizeof numbered, ".%ld", number);
  FILE *f = NULL;
  if (snprintf(path, sizeof path, "%s/%s%s%s.npy", folder, p->file, suffix, numbered) < (int)sizeof path)
    f = fopen(path, "wb");
  if (!f) return fail("cannot write output", p->name, "a folder that can be written", path, "make the folder");
  size_t at = (size_t)snprintf(head, sizeof head, "{'descr': '%c%c%d', 'fortran_order': False, 'shape': (",
                               size == 1 ? '|' : '<', kind, size);
  size_t count = 1;
  for (int d = 0; d < dims; ++d) {
    at += (size_t)snprintf(head + at, sizeof head - at, "%ld,%s", shape[d], d + 1 < dims ? " " : "");
    count *= (size_t)shape[d];
  }
  at += (size_t)snprintf(head + at, sizeof head - at, "), }");
  while ((at + 11) % 64) head[at++] = ' ';
  head[at++] = '\n';
  const unsigned char start[10] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, (unsigned char)(at % 256), (unsigned char)(at / 256)};
  const int good = fwrite(start, 1, 10, f) == 10 && fwrite(head, 1, at, f) == at &&
                   fwrite(data, (size_t)size, count, f) == count;
  return (fclose(f) == 0 && good) || fail("cannot write output", p->name, "room on the disk", path, "make room");
}

static int write_port(const char *folder, const struct port *p, long number) {
  long shape[MOST_DIMS], count = p->sequences ? integer_at(p->sequences, p->sequences_size, 0) : -1;
  memcpy(shape, p->shape, sizeof shape);
  if (p->rows) shape[0] = integer_at(p->rows, p->rows_size, 0);
  if (!write_array(folder, p, "", number, p->data, p->kind, p->size, p->dims, shape)) return 0;
  for (int level = 0; level < p->levels; ++level) {
    char suffix[32];
    const void *offsets = p->level[level];
    const int size = p->level_bytes[level];
    if (count < 0) count = p->level_size[level] - 1;
    int64_t *lengths = malloc((size_t)(count + 1) * sizeof *lengths);
    if (!lengths) return fail("no memory for", p->name, "some", "none", "free some");
    for (long i = 0; i < count; ++i) lengths[i] = integer_at(offsets, size, i + 1) - integer_at(offsets, size, i);
    const long below = count ? integer_at(offsets, size, count) : 0;
    snprintf(suffix, sizeof suffix, level ? ".lengths%d" : ".lengths", level);
    const int good = write_array(folder, p, suffix, number, lengths, 'i', 8, 1, &count);
    free(lengths);
    if (!good) return 0;
    count = below;
  }
  return 1;
}

static int usage(const char *name) {
  printf("usage: %s INPUTS OUTPUTS [--steps N] [--seed N] [--weights FILE] [--save FILE] [--time]\n", name);
  printf("Reads INPUTS/<file>.npy (at step i INPUTS/<file>.i.npy, if there is one), writes OUTPUTS/<file>.npy.\n");
  for (int side = 0; side < 2; ++side) {
    const struct port *ports = side ? outputs : inputs;
    for (int i = 0; i < (side ? OUTPUTS : INPUTS); ++i) {
      char words[256];
      words_of(&ports[i], words, sizeof words);
      printf("%s %s.npy: %s, %s\n", side ? "output" : "input ", ports[i].file, ports[i].name, words);
    }
  }
  return 0;
}

static int load_weights(const char *path) {
#ifdef WEIGHTS_INSIDE
  (void)path;
  memcpy(weights, initial_weights, WEIGHTS);
  return 1;
#else
  const size_t head = sizeof weights_head - 1;
  if (!WEIGHTS) return 1;
  FILE *f = fopen(path, "rb");
  if (!f) return fail("no weights at", path, "the file that was written beside this program", "none", "--weights FILE");
  char *text = malloc(head + 1);
  int good = text && fread(text, 1, head, f) == head && !memcmp(text, weights_head, head);
  good = good && fread(weights, 1, WEIGHTS, f) == WEIGHTS && fgetc(f) == EOF;
  free(text);
  fclose(f);
  return good || fail("other weights than this program's in", path, "its own", "others, or a part", "--weights FILE");
#endif
}

static int save_weights(const char *path) {
  FILE *f = fopen(path, "wb");
  if (!f) return fail("cannot write", path, "a place that can be written", "none", "give another file");
  const size_t head = sizeof weights_head - 1;
  const int good = fwrite(weights_head, 1, head, f) == head && fwrite(weights, 1, WEIGHTS, f) == WEIGHTS;
  return (fclose(f) == 0 && good) || fail("cannot write", path, "room on the disk", "none", "make room");
}

/* Memory whose first byte is at a multiple of 64. */
static char *room(size_t size) {
  char *memory = size < SIZE_MAX - 64 ? malloc(size + 64) : NULL;
  if (memory) memset(memory, 0, size + 64);
  return memory ? memory + (64 - (uintptr_t)memory % 64) % 64 : NULL;
}

int main(int count, char **words) {
  const char *places[2] = {NULL, NULL}, *file = NULL, *save = NULL;
  long steps = 1, seed = 0;
  int given = 0, clocked = 0, numbered = 0;
  for (int i = 1; i < count; ++i) {
    const char *word = words[i], *next = i + 1 < count ? words[i + 1] : NULL;
    if (!strcmp(word, "--help")) return usage(words[0]);
    if (!strcmp(word, "--time")) clocked = 1;
    else if (!strcmp(word, "--steps") && next) steps = strtol(next, NULL, 10), numbered = 1, ++i;
    else if (!strcmp(word, "--seed") && next) seed = strtol(next, NULL, 10), ++i;
    else if (!strcmp(word, "--weights") && next) file = next, ++i;
    else if (!strcmp(word, "--save") && next) save = next, ++i;
    else if (given < 2 && strncmp(word, "--", 2)) places[given++] = word;
    else return fail("wrong argument", word, "INPUTS OUTPUTS and options", "another", "--help") + 2;
  }
  if (given < 2 || steps < 1) return usage(words[0]), 2;
  char beside[4096];
  if (!file) {
    const char *slash = strrchr(words[0], '/');
    snprintf(beside, sizeof beside, "%.*s%s", slash ? (int)(slash - words[0] + 1) : 0, words[0], WEIGHTS_FILE);
    file = beside;
  }
  arena = room(ARENA);
  weights = room(WEIGHTS);
  if (!arena || !weights) return fail("no memory for", "the step", MEMORY_WORDS, "less", "use a smaller batch") + 1;
  if (!load_weights(file)) return 1;
  connect();
  clock_t spent = 0;
  for (long n = 0; n < steps; ++n) {
    for (int i = 0; i < INPUTS; ++i) {
      const struct port *p = &inputs[i];
      long total = 1, row = 1, rows;
      for (int d = 0; d < p->dims; ++d) total *= p->shape[d], row *= d ? p->shape[d] : 1;
      const long number = numbered ? n : -1;
      if (!(p->levels ? read_ragged(places[0], p, number, row) : read_array(places[0], p, "", number, p->data, total, 1, &rows)))
        return 1;
    }
    if (key) key[0] = (uint32_t)seed, key[1] = (uint32_t)n;
    const clock_t begin = clock();
    step();
    spent += clock() - begin;
    for (int i = 0; i < OUTPUTS; ++i)
      if (!write_port(places[1], &outputs[i], numbered ? n : -1)) return 1;
  }
  if (clocked) printf("%.9f seconds of processor time for a step\n", (double)spent / CLOCKS_PER_SEC / (double)steps);
  return save && !save_weights(save) ? 1 : 0;
}
