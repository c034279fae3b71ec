/*
 * What ZooKeeper's C client can ask of a server. All calls are the asynchronous ones, so the
 * same program is for both libraries: with threads, and with -DSINGLE for the one without, whose
 * work turn() does. It prints a line per check and asks the test that runs it for faults.
 */
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <zookeeper/zookeeper.h>

enum { TIMEOUT_MS = 8000, PATIENCE_MS = 30000, PEERS_MAX = 16, PATHS = 200 };

static const char *part;
static int made, passed;

static void is(const char *what, bool ok) {
	made++;
	passed += ok;
	printf("%s %s: %s\n", ok ? "ok  " : "FAIL", part, what);
}

static void same(const char *what, const char *want, const char *got) {
	is(what, strcmp(want, got) == 0);
	if (strcmp(want, got) != 0) printf("     %s, not %s\n", got, want);
}

/* ask has the test do something; the answer is valid until the next one. */
static const char *ask(const char *verb, const char *arg) {
	static char answer[128];
	printf("ask %s %s\n", verb, arg);
	fflush(stdout);
	if (fgets(answer, sizeof answer, stdin) == NULL) exit(2);
	answer[strcspn(answer, "\n")] = 0;
	return answer;
}

/* peer is one client. told is what its watches said. */
struct peer {
	char address[64];
	zhandle_t *zh;
	pthread_mutex_t lock;
	char told[4096];
};

static zhandle_t *handles[PEERS_MAX];

/* turn lets the clients do some of their work. */
static void turn(void) {
#ifdef SINGLE
	struct pollfd fds[PEERS_MAX] = {{0}};
	int wait_ms = 20;
	for (int i = 0; i < PEERS_MAX; i++) {
		int interest = 0;
		struct timeval tv = {0};
		fds[i].fd = -1;
		if (handles[i] == NULL || zookeeper_interest(handles[i], &fds[i].fd, &interest, &tv) != ZOK) continue;
		fds[i].events = (interest & ZOOKEEPER_READ ? POLLIN : 0) | (interest & ZOOKEEPER_WRITE ? POLLOUT : 0);
		int ms = tv.tv_sec * 1000 + tv.tv_usec / 1000;
		if (ms < wait_ms) wait_ms = ms;
	}
	poll(fds, PEERS_MAX, wait_ms);
	for (int i = 0; i < PEERS_MAX; i++) {
		if (handles[i] == NULL || fds[i].fd < 0) continue;
		int events = (fds[i].revents & (POLLIN | POLLHUP | POLLERR) ? ZOOKEEPER_READ : 0) | (fds[i].revents & POLLOUT ? ZOOKEEPER_WRITE : 0);
		zookeeper_process(handles[i], events);
	}
#else
	usleep(1000);
#endif
}

static long now_ms(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* WITHIN waits until a condition holds and says whether it does. */
#define WITHIN(condition)                                                                                                                            \
	({                                                                                                                                           \
		long end = now_ms() + PATIENCE_MS;                                                                                                   \
		while (!(condition) && now_ms() < end) turn();                                                                                       \
		(condition);                                                                                                                         \
	})

static void watcher(zhandle_t *zh, int type, int state, const char *path, void *context) {
	struct peer *p = context;
	const char *name = type == ZOO_CREATED_EVENT ? "created" : type == ZOO_DELETED_EVENT ? "deleted" : type == ZOO_CHANGED_EVENT ? "changed" : "child";
	(void)zh;
	(void)state;
	if (type == ZOO_SESSION_EVENT || type == ZOO_NOTWATCHING_EVENT) return;
	pthread_mutex_lock(&p->lock);
	size_t n = strlen(p->told);
	snprintf(p->told + n, sizeof p->told - n, "%s %s;", name, path);
	pthread_mutex_unlock(&p->lock);
}

/* connect_as opens a session, or takes over the one with an id. */
static void connect_as(struct peer *p, const clientid_t *id) {
	memset(p, 0, sizeof *p);
	pthread_mutex_init(&p->lock, NULL);
	strcpy(p->address, ask("proxy", ""));
	p->zh = zookeeper_init(p->address, watcher, TIMEOUT_MS, id, p, 0);
	for (int i = 0; i < PEERS_MAX; i++) {
		if (handles[i] != NULL) continue;
		handles[i] = p->zh;
		return;
	}
}

static bool connected(struct peer *p) { return WITHIN(zoo_state(p->zh) == ZOO_CONNECTED_STATE); }

static void end(struct peer *p) {
	for (int i = 0; i < PEERS_MAX; i++) {
		if (handles[i] == p->zh) handles[i] = NULL;
	}
	zookeeper_close(p->zh);
}

/* answer is what a call came to. */
struct answer {
	atomic_int done;
	int rc;
	int len; /* of data, -1 for none; the number of strings */
	char text[512];
	struct Stat stat;
};

static void answered(struct answer *a, int rc, const char *text, int len, const struct Stat *stat) {
	a->rc = rc;
	a->len = len;
	if (text != NULL) snprintf(a->text, sizeof a->text, "%.*s", len < 0 ? 0 : len, text);
	if (stat != NULL) a->stat = *stat;
	a->done = 1;
}

static void on_void(int rc, const void *a) { answered((void *)a, rc, NULL, 0, NULL); }
static void on_stat(int rc, const struct Stat *s, const void *a) { answered((void *)a, rc, NULL, 0, s); }
static void on_data(int rc, const char *v, int n, const struct Stat *s, const void *a) { answered((void *)a, rc, v, n, s); }
static void on_string(int rc, const char *v, const void *a) { answered((void *)a, rc, v, v == NULL ? 0 : strlen(v), NULL); }
static void on_string_stat(int rc, const char *v, const struct Stat *s, const void *a) { answered((void *)a, rc, v, v == NULL ? 0 : strlen(v), s); }

static void on_strings_stat(int rc, const struct String_vector *v, const struct Stat *s, const void *a) {
	answered((void *)a, rc, v == NULL || v->count == 0 ? NULL : v->data[0], v == NULL ? 0 : v->count, s);
}

static void on_acl(int rc, struct ACL_vector *v, struct Stat *s, const void *data) {
	char text[256] = "";
	for (int i = 0; v != NULL && i < v->count; i++) {
		size_t n = strlen(text);
		snprintf(text + n, sizeof text - n, "%d %s %s;", v->data[i].perms, v->data[i].id.scheme, v->data[i].id.id);
	}
	answered((void *)data, rc, text, strlen(text), s);
}

static struct answer a;

/* CALL makes a call, whose last argument is &a, and waits for its answer. */
#define CALL(call)                                                                                                                                   \
	({                                                                                                                                           \
		memset(&a, 0, sizeof a);                                                                                                             \
		int sent = call;                                                                                                                     \
		sent == ZOK && WITHIN(a.done) ? a.rc : sent != ZOK ? sent : ZOPERATIONTIMEOUT;                                                       \
	})

static int create(struct peer *p, const char *path, const char *data, int mode) {
	return CALL(zoo_acreate(p->zh, path, data, data == NULL ? -1 : (int)strlen(data), &ZOO_OPEN_ACL_UNSAFE, mode, on_string, &a));
}

static int get(struct peer *p, const char *path) { return CALL(zoo_aget(p->zh, path, 0, on_data, &a)); }
static int set(struct peer *p, const char *path, const char *data, int version) {
	return CALL(zoo_aset(p->zh, path, data, strlen(data), version, on_stat, &a));
}
static int delete(struct peer *p, const char *path, int version) { return CALL(zoo_adelete(p->zh, path, version, on_void, &a)); }
static int exists(struct peer *p, const char *path) { return CALL(zoo_aexists(p->zh, path, 0, on_stat, &a)); }

/* told returns what p's watches said since the last time: a sync comes after all that was sent before. */
static const char *told(struct peer *p) {
	static char text[sizeof p->told];
	CALL(zoo_async(p->zh, "/", on_string, &a));
	pthread_mutex_lock(&p->lock);
	strcpy(text, p->told);
	p->told[0] = 0;
	pthread_mutex_unlock(&p->lock);
	return text;
}

static void nodes(struct peer *p) {
	part = "nodes";
	is("has a session", zoo_client_id(p->zh)->client_id != 0 && zoo_recv_timeout(p->zh) == TIMEOUT_MS);
	is("create", create(p, "/n", "one", 0) == ZOK && strcmp(a.text, "/n") == 0);
	is("create again", create(p, "/n", "", 0) == ZNODEEXISTS);
	is("create below nothing", create(p, "/none/x", "", 0) == ZNONODE);
	is("null stays null", create(p, "/n/null", NULL, 0) == ZOK && get(p, "/n/null") == ZOK && a.len == -1);
	is("empty stays empty", create(p, "/n/empty", "", 0) == ZOK && get(p, "/n/empty") == ZOK && a.len == 0);
	is("a number", create(p, "/n/s-", "", ZOO_SEQUENCE) == ZOK && strcmp(a.text, "/n/s-0000000002") == 0);
	is("an ephemeral", create(p, "/n/e", "", ZOO_EPHEMERAL) == ZOK && exists(p, "/n/e") == ZOK && a.stat.ephemeralOwner == zoo_client_id(p->zh)->client_id);
	is("create below an ephemeral", create(p, "/n/e/x", "", 0) == ZNOCHILDRENFOREPHEMERALS);
	is("a container", create(p, "/n/c", "", ZOO_CONTAINER) == ZOK);
	is("create2", CALL(zoo_acreate2(p->zh, "/n/two", "x", 1, &ZOO_OPEN_ACL_UNSAFE, 0, on_string_stat, &a)) == ZOK && a.stat.czxid > 0 && a.stat.dataLength == 1);
	is("a TTL node", CALL(zoo_acreate2_ttl(p->zh, "/n/t", "", 0, &ZOO_OPEN_ACL_UNSAFE, ZOO_PERSISTENT_WITH_TTL, 3600000, on_string_stat, &a)) == ZOK
			&& a.stat.ephemeralOwner == 0);
	is("set", set(p, "/n", "two", 0) == ZOK && a.stat.version == 1);
	is("set another version", set(p, "/n", "x", 7) == ZBADVERSION);
	is("get", get(p, "/n") == ZOK && strcmp(a.text, "two") == 0 && a.stat.numChildren == 7);
	is("children", CALL(zoo_aget_children2(p->zh, "/n", 0, on_strings_stat, &a)) == ZOK && a.len == 7 && a.stat.cversion == 7);
	is("delete a parent", delete(p, "/n", -1) == ZNOTEMPTY);
	is("delete", delete(p, "/n/two", 0) == ZOK && exists(p, "/n/two") == ZNONODE);
	is("sync", CALL(zoo_async(p->zh, "/n", on_string, &a)) == ZOK && strcmp(a.text, "/n") == 0);
	is("the configuration of one server is empty", CALL(zoo_agetconfig(p->zh, 0, on_data, &a)) == ZOK && a.len == 0);
	is("reconfigure one server", CALL(zoo_areconfig(p->zh, "server.2=127.0.0.1:2888:3888;2181", NULL, NULL, -1, on_data, &a)) == ZRECONFIGDISABLED);
}

static void multi(struct peer *p) {
	char one[64], two[64];
	struct Stat stat;
	zoo_op_t ops[5];
	zoo_op_result_t r[5];
	part = "multi";
	zoo_create_op_init(&ops[0], "/m", "x", 1, &ZOO_OPEN_ACL_UNSAFE, 0, one, sizeof one);
	zoo_create_op_init(&ops[1], "/m/s-", "x", 1, &ZOO_OPEN_ACL_UNSAFE, ZOO_SEQUENCE | ZOO_EPHEMERAL, two, sizeof two);
	zoo_set_op_init(&ops[2], "/m", "yy", 2, 0, &stat);
	zoo_check_op_init(&ops[3], "/m", 1);
	zoo_delete_op_init(&ops[4], "/m/s-0000000000", -1);
	is("succeeds", CALL(zoo_amulti(p->zh, 5, ops, r, on_void, &a)) == ZOK);
	same("a path", "/m", one);
	same("a number", "/m/s-0000000000", two);
	is("a stat", stat.version == 1 && stat.dataLength == 2 && stat.czxid == stat.mzxid);
	zoo_create_op_init(&ops[0], "/fm", "x", 1, &ZOO_OPEN_ACL_UNSAFE, 0, one, sizeof one);
	zoo_check_op_init(&ops[1], "/none", -1);
	is("fails", CALL(zoo_amulti(p->zh, 3, ops, r, on_void, &a)) == ZNONODE);
	is("has an error for each", r[0].err == ZOK && r[1].err == ZNONODE && r[2].err == ZRUNTIMEINCONSISTENCY);
	is("does nothing", exists(p, "/fm") == ZNONODE);
}

static void acl(struct peer *p, struct peer *other) {
	part = "acl";
	is("a login", CALL(zoo_add_auth(p->zh, "digest", "u:pw", 4, on_void, &a)) == ZOK);
	is("auth becomes the one who creates", CALL(zoo_acreate(p->zh, "/acl", "", 0, &ZOO_CREATOR_ALL_ACL, 0, on_string, &a)) == ZOK);
	is("the ACL", CALL(zoo_aget_acl(p->zh, "/acl", on_acl, &a)) == ZOK && strncmp(a.text, "31 digest u:", 12) == 0);
	is("nobody else reads", get(other, "/acl") == ZNOAUTH);
	is("nobody else writes", set(other, "/acl", "", -1) == ZNOAUTH);
	is("no such scheme", CALL(zoo_aset_acl(p->zh, "/acl", 0, &(struct ACL_vector){1, &(struct ACL){31, {"nosuch", "x"}}}, on_void, &a)) == ZINVALIDACL);
	is("another version", CALL(zoo_aset_acl(p->zh, "/acl", 7, &ZOO_OPEN_ACL_UNSAFE, on_void, &a)) == ZBADVERSION);
	is("give it to all", CALL(zoo_aset_acl(p->zh, "/acl", 0, &ZOO_OPEN_ACL_UNSAFE, on_void, &a)) == ZOK && get(other, "/acl") == ZOK);
}

static void on_order(int rc, const struct Stat *s, const void *next) {
	atomic_int *n = (void *)next;
	if (rc == ZOK && s->version == *n + 1) ++*n;
}

static void order(struct peer *p) {
	atomic_int n = 0;
	part = "order";
	create(p, "/order", "", 0);
	for (int i = 0; i < PATHS; i++) zoo_aset(p->zh, "/order", "x", 1, i, on_order, &n);
	is("writes sent at once are done in order", WITHIN(n == PATHS));
}

static void watches(struct peer *p, struct peer *other) {
	part = "watches";
	CALL(zoo_awexists(p->zh, "/w", watcher, p, on_stat, &a));
	create(other, "/w", "", 0);
	same("a node that was not there", "created /w;", told(p));
	CALL(zoo_awget(p->zh, "/w", watcher, p, on_data, &a));
	set(other, "/w", "x", -1);
	set(other, "/w", "y", -1);
	same("data, once", "changed /w;", told(p));
	CALL(zoo_awget_children2(p->zh, "/w", watcher, p, on_strings_stat, &a));
	create(other, "/w/x", "", 0);
	create(other, "/w/y", "", 0);
	same("children, once", "child /w;", told(p));
	CALL(zoo_awget(p->zh, "/w/x", watcher, p, on_data, &a));
	CALL(zoo_awget_children2(p->zh, "/w", watcher, p, on_strings_stat, &a));
	delete(other, "/w/x", -1);
	same("a deletion before its parent's children", "deleted /w/x;child /w;", told(p));
	CALL(zoo_awget(p->zh, "/w", watcher, p, on_data, &a));
	is("one watcher is removed", CALL(zoo_aremove_watches(p->zh, "/w", ZWATCHTYPE_DATA, watcher, p, 0, (void_completion_t *)on_void, &a)) == ZOK);
	CALL(zoo_awget(p->zh, "/w", watcher, p, on_data, &a));
	is("all are removed", CALL(zoo_aremove_all_watches(p->zh, "/w", ZWATCHTYPE_ANY, 0, (void_completion_t *)on_void, &a)) == ZOK);
	set(other, "/w", "z", -1);
	same("nobody is told", "", told(p));
}

static void cut_off(struct peer *p) {
	ask("partition", p->address);
	ask("break", p->address);
	WITHIN(zoo_state(p->zh) != ZOO_CONNECTED_STATE);
}

static void reconnect(struct peer *p, struct peer *other) {
	const char *paths[] = {"/r", "/r/same", "/r/data", "/r/gone", "/r/children"};
	part = "watches over a reconnect";
	for (int i = 0; i < 5; i++) {
		create(other, paths[i], "", 0);
		CALL(zoo_awget(p->zh, paths[i], watcher, p, on_data, &a));
	}
	CALL(zoo_awget_children2(p->zh, "/r/children", watcher, p, on_strings_stat, &a));
	CALL(zoo_awexists(p->zh, "/r/new", watcher, p, on_stat, &a));
	told(p);
	cut_off(p);
	set(other, "/r/data", "x", -1);
	delete(other, "/r/gone", -1);
	create(other, "/r/children/x", "", 0);
	create(other, "/r/new", "", 0);
	ask("heal", p->address);
	is("is connected again", connected(p));
	const char *all = told(p);
	is("what changed meanwhile is told", strstr(all, "changed /r/data;") && strstr(all, "deleted /r/gone;") && strstr(all, "child /r/children;")
			&& strstr(all, "created /r/new;") && strlen(all) == strlen("changed /r/data;deleted /r/gone;child /r/children;created /r/new;"));
	set(other, "/r/same", "x", -1);
	same("the other watches are still there", "changed /r/same;", told(p));
}

static void resume(struct peer *other) {
	struct peer first, second, stranger;
	part = "resume";
	connect_as(&first, NULL);
	connected(&first);
	create(&first, "/resumed", "", ZOO_EPHEMERAL);
	cut_off(&first);
	clientid_t id = *zoo_client_id(first.zh), wrong = {id.client_id, "wrong"};
	connect_as(&stranger, &wrong);
	is("another password is no session", WITHIN(zoo_state(stranger.zh) == ZOO_EXPIRED_SESSION_STATE));
	end(&stranger);
	connect_as(&second, &id);
	is("the password is", connected(&second) && zoo_client_id(second.zh)->client_id == id.client_id);
	is("its ephemerals stay", exists(other, "/resumed") == ZOK);
	end(&second);
	is("they go when it is closed", WITHIN(exists(other, "/resumed") == ZNONODE));
	ask("heal", first.address);
	is("whoever had it is told that it is over", WITHIN(zoo_state(first.zh) == ZOO_EXPIRED_SESSION_STATE));
	end(&first);
}

static void over(struct peer *p, const char *verb) {
	char path[32];
	part = verb;
	snprintf(path, sizeof path, "/%s", verb);
	create(p, path, "", ZOO_EPHEMERAL);
	CALL(zoo_awget(p->zh, path, watcher, p, on_data, &a));
	int64_t session = zoo_client_id(p->zh)->client_id;
	ask(verb, "");
	is("the session goes on", WITHIN(exists(p, path) == ZOK) && zoo_client_id(p->zh)->client_id == session && a.stat.ephemeralOwner == session);
	is("a watch from before is there", set(p, path, "x", -1) == ZOK && strncmp(told(p), "changed", 7) == 0);
}

int main(void) {
	struct peer x, y;
	zoo_set_debug_level(0);
	connect_as(&x, NULL);
	connect_as(&y, NULL);
	part = "connect";
	is("both", connected(&x) && connected(&y));
	nodes(&x);
	multi(&x);
	acl(&x, &y);
	order(&x);
	watches(&x, &y);
	reconnect(&x, &y);
	resume(&y);
	over(&x, "restart");
	over(&x, "crash");
	part = "close";
	end(&x);
	is("takes the ephemerals", WITHIN(exists(&y, "/crash") == ZNONODE) && exists(&y, "/n/e") == ZNONODE);
	end(&y);
	printf("passed %d of %d\n", passed, made);
	return passed == made ? 0 : 1;
}
