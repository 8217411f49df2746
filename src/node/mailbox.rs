//! The mailbox of a client on one server: the channel on which the server says what became of the client's queued
//! requests.
//!
//! It is subscribed when the client first has to wait for a lock, and from then on as long as the client exists. A
//! letter may be missed while the subscription is down, so everybody who waits for one also has a timer, and asks the
//! server again when the mailbox has been subscribed again ([`Letter::Subscribed`]).

mod letter;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

pub(crate) use letter::{Letter, MailedGrant};

use crate::clock::Timestamp;
use crate::key::{self, LeaseId};
use letter::parse;

/// The mailbox of a client on one server. Clones are the same.
#[derive(Clone)]
pub(crate) struct Mailbox {
    shared: Arc<Shared>,
}

struct Shared {
    number: u64,
    nonce: Arc<str>,
    channel: Arc<str>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// How often the node has met another server.
    moves: u64,
    /// How many subscriptions were confirmed.
    confirmed: u64,
    /// The subscription that delivers letters now.
    epoch: Option<Epoch>,
    /// Who waits for letters about a request.
    inboxes: BTreeMap<LeaseId, Arc<Letters>>,
    /// Who wants to know whether others want what a lease holds. Holds may have one lease one after the other, or share it.
    demands: BTreeMap<LeaseId, Vec<Arc<Said>>>,
}

/// One subscription of the mailbox, from its confirmation to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(u64);

#[cfg(any(test, feature = "__test-seam"))]
impl Epoch {
    /// The subscription of this number.
    pub fn numbered(number: u64) -> Self {
        Self(number)
    }
}

impl Mailbox {
    /// `nonce` distinguishes clients of one name. Its first two bits are set, so that a UUID that ends with it is none that ends at
    /// random.
    pub(super) fn new(client: &str, nonce: u64) -> Self {
        let number = nonce | 3 << 62;
        let nonce: Arc<str> = format!("{number:016x}").into();
        let channel = key::mailbox(client, &nonce);
        Self { shared: Arc::new(Shared { number, nonce, channel, state: Mutex::default() }) }
    }

    /// Returns a mailbox that nobody opens.
    pub(super) fn unused(&self) -> Self {
        let Shared { number, nonce, channel, .. } = &*self.shared;
        let (number, nonce, channel) = (*number, nonce.clone(), channel.clone());
        Self { shared: Arc::new(Shared { number, nonce, channel, state: Mutex::default() }) }
    }

    /// Returns the part of the mailbox's name that no other client has: 16 hex digits.
    pub(crate) fn nonce(&self) -> &Arc<str> {
        &self.shared.nonce
    }

    /// Returns the same as a number.
    pub(crate) fn number(&self) -> u64 {
        self.shared.number
    }

    pub(super) fn channel(&self) -> &Arc<str> {
        &self.shared.channel
    }

    /// Returns the subscription that delivers letters now, or `None` if letters are missed.
    pub(crate) fn epoch(&self) -> Option<Epoch> {
        self.shared.state.lock().epoch
    }

    /// Returns a new inbox, which receives nothing before a request is [registered](Inbox::register).
    pub(crate) fn inbox(&self) -> Inbox {
        Inbox { mailbox: self.clone(), letters: Arc::default() }
    }

    /// Returns how often the node has met another server. A subscription takes this number from before its connection.
    pub(super) fn moves(&self) -> u64 {
        self.shared.state.lock().moves
    }

    /// The node met another server: nothing counts that an older subscription still delivers.
    pub(super) fn moved(&self) {
        let mut state = self.shared.state.lock();
        state.moves += 1;
        state.epoch = None;
    }

    /// The server confirmed the subscription, on a connection made after so many `moves`.
    pub(super) fn subscribed(&self, moves: u64) {
        let mut state = self.shared.state.lock();
        // Confirmed twice on one connection, it has missed nothing in between.
        if state.moves != moves || state.epoch.is_some() {
            return;
        }
        state.confirmed += 1;
        state.epoch = Some(Epoch(state.confirmed));
        for letters in state.inboxes.values() {
            letters.queue.lock().subscribed = true;
            letters.arrived.notify_one();
        }
        state.demands.values().flatten().for_each(|said| said.tell(false));
    }

    /// The subscription's connection is gone.
    pub(super) fn unsubscribed(&self) {
        self.shared.state.lock().epoch = None;
    }

    /// Puts a letter into the inbox of the one who waits for it, if somebody does.
    pub(super) fn deliver(&self, payload: &[u8], now: Timestamp) -> Result<(), NotUnderstood> {
        // Without a subscription it comes from a server that the node has left.
        let Some(epoch) = self.epoch() else { return Ok(()) };
        if let Some(id) = payload.strip_prefix(b"wanted ").filter(|id| !id.is_empty()) {
            let id = LeaseId(String::from_utf8_lossy(id).into());
            let state = self.shared.state.lock();
            state.demands.get(&id).into_iter().flatten().for_each(|said| said.tell(true));
            return Ok(());
        }
        let letter = parse(payload, epoch, now).ok_or(NotUnderstood)?;
        let state = self.shared.state.lock();
        if let Some(letters) = letter.id().and_then(|id| state.inboxes.get(id)) {
            letters.put(letter);
        }
        Ok(())
    }
}

/// Hears whether others want what a lease holds, until it is dropped.
pub(crate) struct Demand {
    id: LeaseId,
    mailbox: Mailbox,
    said: Arc<Said>,
}

#[derive(Default)]
struct Said {
    is_wanted: AtomicBool,
    arrived: Notify,
}

impl Said {
    fn tell(&self, is_wanted: bool) {
        self.is_wanted.fetch_or(is_wanted, Ordering::AcqRel);
        self.arrived.notify_one();
    }
}

impl Mailbox {
    /// Hears from now on when others ask for what a lease holds. `None` if its id does not name this mailbox: nobody can tell.
    pub(crate) fn demand(&self, id: &LeaseId) -> Option<Demand> {
        let (high, low) = self.shared.nonce.split_at(4);
        let is_named =
            id.0.strip_suffix(low).is_some_and(|rest| rest.ends_with(&format!("-{high}-")));
        is_named.then(|| {
            let said = Arc::<Said>::default();
            let mut state = self.shared.state.lock();
            state.demands.entry(id.clone()).or_default().push(said.clone());
            Demand { id: id.clone(), mailbox: self.clone(), said }
        })
    }
}

impl Demand {
    /// Waits for the next word: true if others have asked, and false if that may have been missed.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub(crate) async fn said(&self) -> bool {
        self.said.arrived.notified().await;
        self.said.is_wanted.load(Ordering::Acquire)
    }
}

impl Drop for Demand {
    fn drop(&mut self) {
        let mut state = self.mailbox.shared.state.lock();
        let Entry::Occupied(mut all) = state.demands.entry(self.id.clone()) else { return };
        all.get_mut().retain(|said| !Arc::ptr_eq(said, &self.said));
        if all.get().is_empty() {
            all.remove();
        }
    }
}

/// A message that no script writes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NotUnderstood;

/// The letters for one who waits, about one or more requests.
pub(crate) struct Inbox {
    mailbox: Mailbox,
    letters: Arc<Letters>,
}

impl Inbox {
    /// Has the letters about the request `id` delivered here until the registration is dropped. Register a request
    /// before you send it: the server may write at once. An id is registered in one inbox only.
    pub(crate) fn register(&self, id: &LeaseId) -> Registration {
        let Self { mailbox, letters } = self;
        mailbox.shared.state.lock().inboxes.insert(id.clone(), letters.clone());
        Registration { id: id.clone(), mailbox: mailbox.clone(), letters: letters.clone() }
    }

    /// Returns the next letter. Only one caller waits at a time.
    ///
    /// A letter about a request replaces an earlier one about the same request that was not read yet.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no letter.
    pub(crate) async fn next(&self) -> Letter {
        loop {
            if let Some(letter) = self.letters.take() {
                return letter;
            }
            self.letters.arrived.notified().await;
        }
    }
}

/// Has letters about one request delivered to an inbox. After its drop, the inbox returns none of them.
pub(crate) struct Registration {
    id: LeaseId,
    mailbox: Mailbox,
    letters: Arc<Letters>,
}

impl Registration {
    /// Has letters delivered to another inbox of the same mailbox, with those that were not read yet.
    pub(crate) fn move_to(&mut self, inbox: &Inbox) {
        let mut state = self.mailbox.shared.state.lock();
        state.inboxes.insert(self.id.clone(), inbox.letters.clone());
        let before = std::mem::replace(&mut self.letters, inbox.letters.clone());
        // Under the mutex: a newer letter may come as soon as that is free.
        before.take_about(&self.id).into_iter().for_each(|letter| self.letters.put(letter));
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.mailbox.shared.state.lock().inboxes.remove(&self.id);
        self.letters.queue.lock().letters.retain(|letter| letter.id() != Some(&self.id));
    }
}

#[derive(Default)]
struct Letters {
    queue: Mutex<Queue>,
    arrived: Notify,
}

#[derive(Default)]
struct Queue {
    /// At most one for each request, so that no server can fill the memory.
    letters: VecDeque<Letter>,
    /// The mailbox was subscribed since the last look.
    subscribed: bool,
}

impl Letters {
    fn put(&self, letter: Letter) {
        {
            let mut queue = self.queue.lock();
            queue.letters.retain(|other| other.id() != letter.id());
            queue.letters.push_back(letter);
        }
        self.arrived.notify_one();
    }

    /// Takes the letter about a request, if there is one.
    fn take_about(&self, id: &LeaseId) -> Option<Letter> {
        let mut queue = self.queue.lock();
        let at = queue.letters.iter().position(|letter| letter.id() == Some(id))?;
        queue.letters.remove(at)
    }

    fn take(&self) -> Option<Letter> {
        let mut queue = self.queue.lock();
        let letter = queue.letters.pop_front();
        letter.or_else(|| std::mem::take(&mut queue.subscribed).then_some(Letter::Subscribed))
    }
}

#[cfg(test)]
mod tests;
