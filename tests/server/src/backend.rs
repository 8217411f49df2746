//! One server with its connections. It lives on a thread of its own, and all that is done to it is done there.

use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::mpsc;
use std::thread;

use leasehold::seam;

use crate::emulator::resp::Value;
use crate::emulator::wire::{Command, line, take_command};
use crate::emulator::{Executed, LinkId, Replica, Rng, Server};
use crate::time::Time;

type Task = Box<dyn FnOnce(&mut Backend) + Send>;

/// The way to a server's thread.
#[derive(Clone)]
pub(crate) struct Access {
    tasks: mpsc::Sender<Task>,
    time: Time,
}

impl Access {
    /// Starts a server.
    pub(crate) fn start() -> Self {
        let (tasks, todo) = mpsc::channel::<Task>();
        let time = Time::here();
        let now_us = time.now_us();
        let run = move || {
            let mut backend = Backend::new(now_us);
            while !backend.has_ended {
                let Ok(task) = todo.recv() else { return };
                task(&mut backend);
            }
        };
        let thread = thread::Builder::new().name("leasehold-test".to_owned());
        thread.spawn(run).expect("a thread can be started");
        Self { tasks, time }
    }

    /// Does something to the server, and returns when it is done. `None`: the server has ended.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        task: impl FnOnce(&mut Backend) -> T + Send + 'static,
    ) -> Option<T> {
        let (done, output) = mpsc::sync_channel(1);
        self.post(move |backend| {
            let _ = done.send(task(backend));
        });
        output.recv().ok()
    }

    /// Does something to the server, and does not wait for it.
    pub(crate) fn post(&self, task: impl FnOnce(&mut Backend) + Send + 'static) {
        let now_us = self.time.now_us();
        let task = move |backend: &mut Backend| {
            backend.now_us = backend.now_us.max(now_us);
            task(backend);
        };
        let _ = self.tasks.send(Box::new(task));
    }
}

/// The server's end of a connection.
pub(crate) trait End: Send {
    fn send(&mut self, bytes: &[u8]);
    fn close(&mut self);
}

struct Link {
    unread: Vec<u8>,
    /// What it would have been told, had the server not hung.
    unsent: Vec<u8>,
    end: Box<dyn End>,
    /// The client closed its end, and the server has not come to that yet.
    is_left: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Condition {
    Well,
    /// It reads and answers nothing.
    Hung,
    /// Nobody can reach it.
    Cut,
}

pub(crate) struct Backend {
    server: Server,
    now_us: u64,
    links: BTreeMap<LinkId, Link>,
    next_link: LinkId,
    condition: Condition,
    /// What a replica has that gets nothing any more. `None`: it has everything.
    replica: Option<Replica>,
    has_ended: bool,
}

impl Backend {
    fn new(now_us: u64) -> Self {
        let seed = RandomState::new().build_hasher().finish();
        let mut server = Server::new(Rng::new(seed), now_us.saturating_sub(LONG_UP_US));
        // Clients of several servers would take no lock for a minute otherwise: it may have had some before.
        server.known_since_start();
        Self {
            server,
            now_us,
            links: BTreeMap::new(),
            next_link: 1,
            condition: Condition::Well,
            replica: None,
            has_ended: false,
        }
    }

    /// A new connection; `None` if nobody can reach the server.
    pub(crate) fn accept(&mut self, end: Box<dyn End>) -> Option<LinkId> {
        if self.condition == Condition::Cut {
            return None;
        }
        let link = self.next_link;
        self.next_link += 1;
        self.links
            .insert(link, Link { unread: Vec::new(), unsent: Vec::new(), end, is_left: false });
        self.server.accept(link);
        Some(link)
    }

    /// Returns whether the connection still stands.
    pub(crate) fn receive(&mut self, link: LinkId, bytes: &[u8]) -> bool {
        let Some(it) = self.links.get_mut(&link) else { return false };
        it.unread.extend_from_slice(bytes);
        if self.condition == Condition::Well {
            self.work(link);
        }
        true
    }

    /// The client closed its end. What it sent before runs all the same, when the server comes to it.
    pub(crate) fn leave(&mut self, link: LinkId) {
        if self.condition == Condition::Hung {
            if let Some(it) = self.links.get_mut(&link) {
                it.is_left = true;
            }
            return;
        }
        self.links.remove(&link);
        self.server.forget(link);
    }

    /// Runs what has come on a connection.
    fn work(&mut self, link: LinkId) {
        while let Some(it) = self.links.get_mut(&link) {
            match take_command(&mut it.unread) {
                Ok(Some(command)) if is_of_a_browser(&command) => self.close(link),
                Ok(Some(command)) => {
                    let done = self.server.execute(link, &command, self.now_us);
                    self.tell(link, done);
                }
                Ok(None) => return,
                Err(problem) => {
                    let mut reply = Vec::new();
                    line('-', problem, &mut reply);
                    it.end.send(&reply);
                    self.close(link);
                }
            }
        }
    }

    fn tell(&mut self, from: LinkId, done: Executed) {
        if let Some(it) = self.links.get_mut(&from).filter(|_| !done.reply.is_empty()) {
            it.end.send(&done.reply);
        }
        for (link, bytes) in done.pushes {
            match self.links.get_mut(&link) {
                Some(it) if self.condition == Condition::Hung => it.unsent.extend(bytes),
                Some(it) => it.end.send(&bytes),
                None => {}
            }
        }
        done.closed.into_iter().for_each(|link| self.close(link));
    }

    fn close(&mut self, link: LinkId) {
        self.server.forget(link);
        if let Some(mut it) = self.links.remove(&link) {
            it.end.close();
        }
    }

    fn close_all(&mut self) {
        let all: Vec<LinkId> = self.links.keys().copied().collect();
        all.into_iter().for_each(|link| self.close(link));
    }

    pub(crate) fn hang(&mut self) {
        self.condition = Condition::Hung;
    }

    pub(crate) fn cut(&mut self) {
        self.condition = Condition::Cut;
        self.close_all();
    }

    pub(crate) fn resume(&mut self) {
        self.condition = Condition::Well;
        for link in self.links.values_mut() {
            let unsent = std::mem::take(&mut link.unsent);
            if !unsent.is_empty() {
                link.end.send(&unsent);
            }
        }
        let all: Vec<LinkId> = self.links.keys().copied().collect();
        for link in all {
            self.work(link);
            if self.links.get(&link).is_some_and(|it| it.is_left) {
                self.leave(link);
            }
        }
    }

    /// Another process takes this one's place. It does not hang; whether it can be reached is another matter.
    fn end_process(&mut self) {
        self.close_all();
        if self.condition == Condition::Hung {
            self.condition = Condition::Well;
        }
    }

    pub(crate) fn restart_empty(&mut self) {
        self.end_process();
        // It was started with the same settings.
        let durable = self.server.durable;
        self.server.restart(self.now_us, false);
        self.server.durable = durable;
        self.replica = None;
    }

    pub(crate) fn stop_replication(&mut self) {
        if self.replica.is_none() {
            self.replica = Some(self.replica_now());
        }
    }

    pub(crate) fn fail_over(&mut self) {
        self.end_process();
        let replica = self.replica.take().unwrap_or_else(|| self.replica_now());
        self.server.replaced_by(replica, self.now_us);
    }

    fn replica_now(&mut self) -> Replica {
        let mut replica = self.server.new_replica();
        self.server.replicate(&mut replica);
        replica
    }

    pub(crate) fn deny(&mut self, right: &str) {
        self.server.deny(right);
    }

    pub(crate) fn allow_all(&mut self) {
        self.server.allow_all();
    }

    pub(crate) fn end(&mut self) {
        self.close_all();
        self.has_ended = true;
    }

    /// Takes a lock from whoever has it, as a forced unlock does.
    pub(crate) fn lose(&mut self, name: &str) -> bool {
        let fields = self.fields(name);
        if fields.is_empty() {
            return self.end_permits(name);
        }
        let reads_or_writes = fields.iter().any(|(field, _)| field == b"mode");
        let (script, keys, args) = seam::forced_unlock(name, reads_or_writes);
        let count = keys.len().to_string();
        let words = ["EVAL", script, &count].map(str::to_owned).into_iter();
        let command: Command = words.chain(keys).chain(args).map(String::into_bytes).collect();
        let (reply, done) = self.server.execute_unrestricted(&command, self.now_us);
        self.tell(NO_LINK, done);
        reply == Value::Int(1)
    }

    /// Ends a lock as if its time were over.
    pub(crate) fn expire(&mut self, name: &str) -> bool {
        let key = name.as_bytes().to_vec();
        if self.fields(name).is_empty() {
            return self.end_permits(name);
        }
        self.server.keys(self.now_us, |keys| keys.take(&key)).is_some()
    }

    fn fields(&self, name: &str) -> Vec<(Vec<u8>, Vec<u8>)> {
        self.server.keys(self.now_us, |keys| keys.fields(name.as_bytes()))
    }

    /// All permits of a semaphore are back.
    fn end_permits(&mut self, name: &str) -> bool {
        let holders = seam::permits_key(name);
        self.server.keys(self.now_us, |keys| {
            let permits = keys.ranked(holders.as_bytes()).len() as i64;
            let Some(left) = keys.number(name.as_bytes()).filter(|_| permits > 0) else {
                return false;
            };
            keys.take(holders.as_bytes());
            let left = (left + permits).to_string();
            let words = [name.as_bytes(), left.as_bytes(), b"KEEPTTL"];
            keys.run("set", &words.map(<[u8]>::to_vec));
            true
        })
    }
}

/// What a web page makes a browser send is no command, though one of its lines may look like one.
fn is_of_a_browser(command: &[Vec<u8>]) -> bool {
    let word = command.first().map(Vec::as_slice).unwrap_or_default();
    [&b"post"[..], b"host:"].iter().any(|first| word.eq_ignore_ascii_case(first))
}

/// It is no newcomer, which clients take for one that has forgotten something.
const LONG_UP_US: u64 = 30 * 24 * 3_600_000_000;
/// No connection has this number.
const NO_LINK: LinkId = 0;

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// What a client was sent, and whether its connection was closed.
    #[derive(Clone, Default)]
    struct Client(Arc<Mutex<(String, bool)>>);

    impl Client {
        fn told(&self) -> String {
            std::mem::take(&mut self.0.lock().expect("no panic").0)
        }

        fn is_closed(&self) -> bool {
            self.0.lock().expect("no panic").1
        }
    }

    impl End for Client {
        fn send(&mut self, bytes: &[u8]) {
            self.0.lock().expect("no panic").0 += &String::from_utf8_lossy(bytes);
        }

        fn close(&mut self) {
            self.0.lock().expect("no panic").1 = true;
        }
    }

    fn connected(backend: &mut Backend) -> (Client, LinkId) {
        let client = Client::default();
        let link = backend.accept(Box::new(client.clone())).expect("it can be reached");
        (client, link)
    }

    #[test]
    fn a_web_page_cannot_send_commands() {
        let mut backend = Backend::new(LONG_UP_US);
        let by_web_pages = [
            "POST / HTTP/1.1\r\n",
            "PUT / HTTP/1.1\r\nHost: localhost\r\n",
            "*1\r\n$4\r\npost\r\n",
        ];
        for sent in by_web_pages {
            let (page, link) = connected(&mut backend);
            backend.receive(link, format!("{sent}SET a 1\r\n").as_bytes());
            assert!(page.is_closed(), "{sent}");
        }
        let (client, link) = connected(&mut backend);
        backend.receive(link, b"EXISTS a\r\n");
        assert_eq!(client.told(), ":0\r\n");
        assert!(!client.is_closed());
    }

    #[test]
    fn a_server_that_hangs_sends_nothing_of_its_own_until_it_goes_on() {
        let mut backend = Backend::new(LONG_UP_US);
        let (client, link) = connected(&mut backend);
        backend.receive(link, b"SUBSCRIBE redisson_lock__channel:{a}\r\n");
        let (other, writer) = connected(&mut backend);
        backend.receive(writer, b"HSET a c:1 1\r\n");
        assert!(client.told().starts_with("*3\r\n$9\r\nsubscribe\r\n"));
        assert_eq!(other.told(), ":1\r\n");
        backend.hang();
        assert!(backend.lose("a"));
        backend.receive(link, b"PING\r\n");
        assert_eq!(client.told(), "");
        backend.resume();
        let told = client.told();
        let [message, answer] = ["message", "pong"].map(|word| told.find(word));
        assert!(message.is_some() && message < answer, "{told}");
    }

    #[test]
    fn a_new_process_does_not_hang() {
        let replacements: [fn(&mut Backend); 2] = [Backend::restart_empty, Backend::fail_over];
        for replace in replacements {
            let mut backend = Backend::new(LONG_UP_US);
            backend.hang();
            replace(&mut backend);
            let (client, link) = connected(&mut backend);
            backend.receive(link, b"PING\r\n");
            assert_eq!(client.told(), "+PONG\r\n");
        }
    }

    #[test]
    fn replication_that_was_stopped_stays_where_it_was() {
        let mut backend = Backend::new(LONG_UP_US);
        let (_, link) = connected(&mut backend);
        backend.receive(link, b"SET a 1\r\n");
        backend.stop_replication();
        backend.receive(link, b"SET b 1\r\n");
        backend.stop_replication();
        backend.fail_over();
        let (client, link) = connected(&mut backend);
        backend.receive(link, b"EXISTS a\r\nEXISTS b\r\n");
        assert_eq!(client.told(), ":1\r\n:0\r\n");
    }
}
