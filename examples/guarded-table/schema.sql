-- A table that admits writes of the latest leader alone: the fencing token is checked where
-- the effect is, in the transaction of the effect.
create table if not exists fence (name text primary key, token integer not null);
create table if not exists work (
	id integer primary key autoincrement,
	at text not null default (strftime('%H:%M:%f', 'now')),
	worker text not null,
	token integer not null
);
create trigger if not exists fenced before insert on work begin
	insert into fence (name, token) values ('work', new.token)
		on conflict (name) do update set token = max(token, excluded.token);
	select raise(abort, 'stale fencing token')
		where new.token < (select token from fence where name = 'work');
end;
