//! Clients of the driver's own that name masters which are not in use: yet, or any more.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use leasehold::{Client, Error, Guard};
use tokio::time::{Instant, sleep, timeout};

use crate::{
    clock::now,
    event::{How, What, Why},
    locks::MUTEXES,
    recorder::{Recorder, Watched},
    scene::Scene,
};

/// Their journal.
pub(crate) const STRAYS: &str = "strays";

/// All of them: they write to one journal.
pub(crate) struct Strays<'a> {
    scene: &'a Scene,
    recorder: &'a Recorder,
    made: AtomicU64,
}

/// One that was right once, and that an operator has forgotten.
pub(crate) struct Forgotten {
    client: Client,
    masters: Vec<usize>,
    held: Option<(Guard, Watched)>,
}

impl<'a> Strays<'a> {
    pub(crate) fn new(scene: &'a Scene, recorder: &'a Recorder) -> Self {
        Self { scene, recorder, made: AtomicU64::new(0) }
    }

    /// One that names these masters tries to get a lock, until it is refused or gets it.
    pub(crate) async fn tries(&self, masters: &[usize]) {
        let since = now();
        let answer = self.connect(masters).await;
        let refused = match answer {
            Ok(client) => {
                let refused = self.is_refused(&client).await;
                client.shutdown().await;
                refused
            }
            Err(told) => Some(told),
        };
        self.named(masters, since, refused);
    }

    /// One that names the masters in use, and is not stopped in time. `None`: it is refused all the same.
    pub(crate) async fn is_right(&self, masters: &[usize]) -> Option<Forgotten> {
        let since = now();
        let answer = self.connect(masters).await;
        self.named(masters, since, answer.as_ref().err().cloned());
        let client = answer.ok()?;
        Some(Forgotten { client, masters: masters.to_vec(), held: None })
    }

    /// It takes a lock, and keeps it.
    pub(crate) async fn takes(&self, forgotten: &mut Forgotten) {
        let op = self.recorder.asked(KEPT, self.recorder.number(), How::Lock, None);
        match timeout(LIMIT, forgotten.client.mutex(KEPT).lock()).await {
            Ok(Ok(guard)) => {
                let mut watched = self.recorder.granted(op, &guard, self.scene.ttl);
                watched.alarm(guard.lost());
                forgotten.held = Some((guard, watched));
            }
            // Whoever names the masters in use is not refused for them.
            Ok(Err(error)) => {
                let since = now();
                if let Error::InvalidConfig { .. } = &error {
                    self.named(&forgotten.masters, since, Some(error.to_string()));
                }
                self.recorder.refused(op, &error);
            }
            Err(_) => self.recorder.dropped(op),
        }
    }

    /// Other masters are in use by now: it gets no lock any more, and gives back what it has.
    pub(crate) async fn ends(&self, forgotten: Forgotten) {
        let Forgotten { client, masters, held } = forgotten;
        let since = now();
        let refused = self.is_refused(&client).await;
        self.named(&masters, since, refused);
        if let Some((guard, mut watched)) = held {
            watched.observe(&guard);
            watched.releasing(&guard, How::Unlock);
            watched.released(&guard.unlock().await);
        }
        client.shutdown().await;
    }

    /// The words with which it is refused; nothing: it has got a lock. No words: it is neither, for long.
    async fn is_refused(&self, client: &Client) -> Option<String> {
        let (asked_at, mutex) = (Instant::now(), client.mutex(MUTEXES[0]));
        while asked_at.elapsed() < LIMIT {
            let op = self.recorder.asked(mutex.name(), self.recorder.number(), How::TryLock, None);
            match mutex.try_lock().await {
                Ok(Some(guard)) => {
                    let mut watched = self.recorder.granted(op, &guard, self.scene.ttl);
                    sleep(TICK).await;
                    watched.releasing(&guard, How::Unlock);
                    watched.released(&guard.unlock().await);
                    return None;
                }
                Err(error @ Error::InvalidConfig { .. }) => {
                    let (op, why) = (op.number, Why::OtherMasters);
                    self.recorder.journal.write(What::Refused { op, why, holder: None });
                    return Some(error.to_string());
                }
                // Its servers may not have said so yet, or another one may hold the lock.
                Ok(None) | Err(_) => self.recorder.dropped(op),
            }
            sleep(TICK).await;
        }
        Some(String::new())
    }

    async fn connect(&self, masters: &[usize]) -> Result<Client, String> {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let urls = masters.iter().map(|index| self.scene.deployment.nodes[*index].url(0));
        let builder = Client::builder()
            .nodes(urls)
            .name(format!("stray-{number}"))
            .ttl(self.scene.ttl)
            .restart_quarantine(self.scene.quarantine)
            .connect_timeout(Duration::from_secs(2))
            .unavailable_after(Duration::from_secs(3));
        let asked_at = Instant::now();
        loop {
            match builder.clone().connect().await {
                Ok(client) => return Ok(client),
                Err(error @ Error::InvalidConfig { .. }) => return Err(error.to_string()),
                Err(error) => assert!(asked_at.elapsed() < LIMIT, "{error}"),
            }
        }
    }

    fn named(&self, masters: &[usize], since: u64, refused: Option<String>) {
        let list = self.scene.deployment.list_of(masters);
        self.recorder.journal.write(What::Named { list, since, refused });
    }
}

/// What a forgotten one keeps.
const KEPT: &str = MUTEXES[3];
const TICK: Duration = Duration::from_millis(20);
/// Who is refused learns of it long before.
const LIMIT: Duration = Duration::from_secs(15);
