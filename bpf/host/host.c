/* SPDX-License-Identifier: MIT */
/* host.c: maps, clock and CPUs for one tool's programs, compiled for this machine as a shared object.
 *
 * Maps are empty in an object that is loaded afresh. One thread calls it: nothing here is atomic.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "host.h"

/* BPF_NOEXIST, BPF_LOCAL_STORAGE_GET_F_CREATE */
#define NO_EXIST 1
#define CREATE 1

#define HOST_MAPS 64
#define HOST_BUCKETS 4096

struct host_entry {
	struct host_entry *next;
	/* Key, then the values of all CPUs. */
	unsigned char bytes[];
};

struct host_map {
	const void *map;
	struct host_shape shape;
	__u32 entries;
	/* Keys are tasks, and an entry goes with its task. */
	int is_storage;
	struct host_entry *buckets[HOST_BUCKETS];
};

static struct host_map *host_maps[HOST_MAPS];
/* No table has room for another key. */
static int host_is_full;
static __u64 host_clock;
static __u32 host_at;
static void *host_task;

__u64 host_now(void)
{
	return host_clock;
}

__u32 host_cpu(void)
{
	return host_at;
}

void *host_current(void)
{
	return host_task;
}

/* Registers of every thread: zeros. */
void *host_registers(void)
{
	static void *registers;

	if (!registers)
		registers = calloc(1, 1024);
	return registers;
}

void *host_reserve(__u64 bytes)
{
	return malloc(bytes);
}

void host_submit(void *record)
{
	free(record);
}

static unsigned char host_record[256];
static __u32 host_record_bytes;

long host_write(const void *record, __u32 bytes)
{
	if (bytes > sizeof(host_record))
		abort();
	memcpy(host_record, record, bytes);
	host_record_bytes = bytes;
	return 0;
}

const void *host_written(void)
{
	const void *record = host_record_bytes ? host_record : NULL;

	host_record_bytes = 0;
	return record;
}

static struct host_map *host_map_of(const void *map, const struct host_shape *shape)
{
	for (int i = 0; i < HOST_MAPS; i++) {
		if (!host_maps[i]) {
			host_maps[i] = calloc(1, sizeof(*host_maps[i]));
			host_maps[i]->map = map;
			host_maps[i]->shape = *shape;
		}
		if (host_maps[i]->map == map)
			return host_maps[i];
	}
	abort();
}

/* FNV-1a. */
static __u32 host_hash(const void *key, __u32 bytes)
{
	__u32 hash = 2166136261u;

	for (__u32 i = 0; i < bytes; i++)
		hash = (hash ^ ((const unsigned char *)key)[i]) * 16777619u;
	return hash % HOST_BUCKETS;
}

static struct host_entry **host_find(struct host_map *map, const void *key)
{
	__u32 bytes = map->shape.key_bytes;
	struct host_entry **entry = &map->buckets[host_hash(key, bytes)];

	while (*entry && memcmp((*entry)->bytes, key, bytes))
		entry = &(*entry)->next;
	return entry;
}

static size_t host_padded(__u32 bytes)
{
	return ((size_t)bytes + 7) / 8 * 8;
}

static void *host_value(struct host_map *map, struct host_entry *entry, __u32 cpu)
{
	__u32 at = map->shape.is_per_cpu ? cpu : 0;

	return entry->bytes + host_padded(map->shape.key_bytes) + at * host_padded(map->shape.value_bytes);
}

static struct host_entry *host_make(struct host_map *map, struct host_entry **place, const void *key)
{
	size_t values = host_padded(map->shape.value_bytes) * (map->shape.is_per_cpu ? HOST_CPUS : 1);
	struct host_entry *entry;

	if (map->shape.max_entries && map->entries >= map->shape.max_entries)
		return NULL;
	if (host_is_full && !map->shape.is_array && !map->shape.makes_room && !map->is_storage)
		return NULL;
	entry = calloc(1, sizeof(*entry) + host_padded(map->shape.key_bytes) + values);
	memcpy(entry->bytes, key, map->shape.key_bytes);
	*place = entry;
	map->entries++;
	return entry;
}

void *host_lookup(const void *of, const struct host_shape *shape, const void *key)
{
	struct host_map *map = host_map_of(of, shape);
	struct host_entry **place = host_find(map, key);

	if (!*place && shape->is_array && *(const __u32 *)key < shape->max_entries)
		host_make(map, place, key);
	return *place ? host_value(map, *place, host_at) : NULL;
}

long host_update(const void *of, const struct host_shape *shape, const void *key, const void *value, __u64 flags)
{
	struct host_map *map = host_map_of(of, shape);
	struct host_entry **place = host_find(map, key);

	if (*place && flags == NO_EXIST)
		return -17;
	if (!*place && !host_make(map, place, key))
		return -7;
	memcpy(host_value(map, *place, host_at), value, shape->value_bytes);
	return 0;
}

long host_delete(const void *of, const struct host_shape *shape, const void *key)
{
	struct host_map *map = host_map_of(of, shape);
	struct host_entry **place = host_find(map, key), *entry = *place;

	if (!entry)
		return -2;
	*place = entry->next;
	free(entry);
	map->entries--;
	return 0;
}

void host_visit(const void *of, bool (*takes)(const void *key, const void *value, void *to), void *to)
{
	for (int i = 0; i < HOST_MAPS && host_maps[i]; i++) {
		for (int b = 0; host_maps[i]->map == of && b < HOST_BUCKETS; b++) {
			struct host_entry **place = &host_maps[i]->buckets[b], *entry;

			while ((entry = *place)) {
				if (!takes(entry->bytes, host_value(host_maps[i], entry, 0), to)) {
					place = &entry->next;
					continue;
				}
				*place = entry->next;
				free(entry);
				host_maps[i]->entries--;
			}
		}
	}
}

/* NULL: nothing has used the map yet. */
static struct host_map *host_known(const void *of)
{
	for (int i = 0; i < HOST_MAPS && host_maps[i]; i++)
		if (host_maps[i]->map == of)
			return host_maps[i];
	return NULL;
}

const void *host_entry(const void *of, const void *key)
{
	struct host_map *map = host_known(of);
	struct host_entry *entry = map ? *host_find(map, key) : NULL;

	return entry ? host_value(map, entry, host_at) : NULL;
}

void host_add_up(const void *of, const void *key, __u64 *to, __u32 words)
{
	struct host_map *map = host_known(of);
	struct host_entry *entry = map ? *host_find(map, key) : NULL;

	for (__u32 cpu = 0; entry && cpu < (map->shape.is_per_cpu ? HOST_CPUS : 1); cpu++)
		for (__u32 at = 0; at < words; at++)
			to[at] += ((const __u64 *)host_value(map, entry, cpu))[at];
}

static bool host_is_empty(const struct host_map *map, const struct host_entry *entry, size_t bytes)
{
	for (size_t at = host_padded(map->shape.key_bytes); at < bytes; at++)
		if (entry->bytes[at])
			return false;
	return map->shape.is_array;
}

void host_dump(void (*entry)(void *to, const char *map, const void *bytes, __u64 length), void *to)
{
	for (int i = 0; i < HOST_MAPS && host_maps[i]; i++) {
		const struct host_map *map = host_maps[i];
		size_t values = host_padded(map->shape.value_bytes) * (map->shape.is_per_cpu ? HOST_CPUS : 1);
		size_t bytes = host_padded(map->shape.key_bytes) + values;
		Dl_info info = {};

		if (map->is_storage || !dladdr(map->map, &info) || !info.dli_sname)
			continue;
		for (int b = 0; b < HOST_BUCKETS; b++)
			for (const struct host_entry *at = map->buckets[b]; at; at = at->next)
				if (!host_is_empty(map, at, bytes))
					entry(to, info.dli_sname, at->bytes, bytes);
	}
}

void *host_storage(const void *of, const struct host_shape *shape, const void *task, __u64 flags)
{
	struct host_map *map = host_map_of(of, shape);
	struct host_entry **place = host_find(map, &task);

	map->is_storage = 1;
	if (!*place && flags & CREATE)
		host_make(map, place, &task);
	return *place ? host_value(map, *place, 0) : NULL;
}

void host_poke(const volatile void *to, const void *from, __u64 bytes)
{
	unsigned long page = sysconf(_SC_PAGESIZE), at = (unsigned long)to / page * page;

	if (mprotect((void *)at, (unsigned long)to + bytes - at, PROT_READ | PROT_WRITE))
		abort();
	memcpy((void *)to, from, bytes);
}

void *host_make_task(__u64 bytes)
{
	return calloc(1, bytes);
}

void host_free_task(void *task)
{
	for (int i = 0; i < HOST_MAPS && host_maps[i]; i++)
		if (host_maps[i]->is_storage)
			host_delete(host_maps[i]->map, &host_maps[i]->shape, &task);
	free(task);
}

void host_set(__u64 clock, __u32 cpu, void *task)
{
	host_clock = clock;
	host_at = cpu;
	host_task = task;
}

void host_fill(void)
{
	host_is_full = 1;
}

void host_free(void)
{
	for (int i = 0; i < HOST_MAPS && host_maps[i]; i++) {
		for (int b = 0; b < HOST_BUCKETS; b++)
			while (host_maps[i]->buckets[b]) {
				struct host_entry *entry = host_maps[i]->buckets[b];

				host_maps[i]->buckets[b] = entry->next;
				free(entry);
			}
		free(host_maps[i]);
	}
}
