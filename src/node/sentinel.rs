//! Learns from Sentinels where the master is.
//!
//! Every Sentinel has connections and timers of its own: it is asked each second, and it reports switches by messages. So
//! one that is dead, hangs or is behind delays nothing. The leader of a failover may report it much later than the others
//! do, which is why all are listened to.
//!
//! If no Sentinel answers, the master that they named last is still used.

mod facts;
mod servers;
mod views;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream::StreamExt;
use parking_lot::Mutex;
use redis::aio::{PubSubSink, PubSubStream};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::commands::Commands;
use super::info::optional;
use super::target::{Dial, Target};
use crate::clock::{Clock, Timestamp};
use crate::config::Watched;
use crate::error::Fault;
use crate::events;
use crate::script::Reply;
pub(crate) use facts::{NamedMasters, WatchFacts};
use facts::{number_in, run_of};
use servers::Servers;
use views::{Announced, Views};

/// The Sentinels of a master.
pub(super) struct Sentinels {
    /// The name by which they know it.
    master: Arc<str>,
    sentinels: Vec<Target>,
    servers: Servers,
    state: Mutex<State>,
    /// The master, or why there is none. `None` until enough of them have answered.
    known: watch::Sender<Option<Result<Arc<Target>, Fault>>>,
    /// Notified by the first answer.
    answered: Notify,
    closing: CancellationToken,
    clock: Clock,
    response_timeout: Duration,
    connect_timeout: Duration,
}

struct State {
    views: Views,
    /// Why a Sentinel does not answer.
    faults: Vec<Option<Fault>>,
    /// The master is made known at once. Before that, the others get a moment to answer, too.
    settled: bool,
    /// When the last answer came.
    heard_at: Timestamp,
    /// It was reported that there are no answers any more.
    is_silent: bool,
}

/// A subscription of the switches, if the user may have one.
type Listening = Option<(PubSubSink, PubSubStream)>;

impl Sentinels {
    /// Starts to ask all of them.
    pub(super) fn start(
        watched: &Watched,
        dial: Dial,
        clock: &Clock,
        [response_timeout, connect_timeout]: [Duration; 2],
        tasks: &TaskTracker,
    ) -> Result<Arc<Self>, Fault> {
        let sentinels = watched.sentinels.iter().map(|address| dial.target(address));
        let sentinels: Vec<Target> = sentinels.collect::<Result<_, _>>()?;
        let count = sentinels.len();
        let servers =
            Servers { dial, like: watched.servers.clone(), map: watched.address_map.clone() };
        let this = Arc::new(Self {
            master: watched.master.clone(),
            sentinels,
            servers,
            state: Mutex::new(State {
                views: Views::of(count),
                faults: vec![None; count],
                settled: false,
                heard_at: clock.now(),
                is_silent: false,
            }),
            known: watch::Sender::new(None),
            answered: Notify::new(),
            closing: CancellationToken::new(),
            clock: clock.clone(),
            response_timeout,
            connect_timeout,
        });
        tasks.spawn_on(this.clone().run(), clock.runtime());
        Ok(this)
    }

    /// Returns the master, waiting until `until` if it is not known yet.
    pub(super) async fn target(
        &self,
        clock: &Clock,
        until: Timestamp,
    ) -> Result<Arc<Target>, Fault> {
        let mut known = self.known.subscribe();
        let known = clock.until(until, known.wait_for(Option::is_some)).await;
        match known {
            Some(Ok(known)) => known.clone().unwrap_or(Err(Fault::Closed)),
            Some(Err(_)) => Err(Fault::Closed),
            None => Err(self.nobody_knows()),
        }
    }

    /// Waits until the master is another one than `from`.
    pub(super) async fn moved(&self, from: Option<&Arc<Target>>) {
        let is_another = |known: &Option<Result<Arc<Target>, Fault>>| match (known, from) {
            (Some(Ok(target)), Some(from)) => !Arc::ptr_eq(target, from),
            (Some(Ok(_)), None) => true,
            _ => false,
        };
        let mut known = self.known.subscribe();
        if known.wait_for(is_another).await.is_err() {
            std::future::pending().await
        }
    }

    /// The server said itself that it is a replica.
    pub(super) fn is_replica(&self, target: &Arc<Target>) {
        let mut state = self.state.lock();
        let is_chosen =
            matches!(&*self.known.borrow(), Some(Ok(known)) if Arc::ptr_eq(known, target));
        if let (true, Some(at)) = (is_chosen, state.views.chosen().cloned()) {
            state.views.is_replica(&at);
            self.conclude(&mut state);
        }
    }

    pub(super) fn close(&self) {
        self.closing.cancel();
    }

    async fn run(self: Arc<Self>) {
        let all = join_all((0..self.sentinels.len()).map(|index| self.follow(index)));
        let all = async { tokio::join!(all, self.settle()) };
        self.closing.run_until_cancelled(all).await;
    }

    /// Gives the others a moment to answer after the first one has.
    async fn settle(&self) {
        self.answered.notified().await;
        self.clock.sleep(SETTLE).await;
        let mut state = self.state.lock();
        state.settled = true;
        self.conclude(&mut state);
    }

    /// Asks one Sentinel and listens to it, over and over.
    async fn follow(&self, index: usize) {
        let mut attempt = 0;
        while !self.clock.is_stopped() {
            let began_at = self.clock.now();
            let Err(fault) = self.converse(index).await;
            self.failed(index, fault);
            if self.clock.now().since(began_at) >= LASTING {
                attempt = 0;
            }
            self.clock.sleep(self.clock.back_off(attempt, LONGEST_PAUSE)).await;
            attempt = attempt.saturating_add(1);
        }
    }

    /// Returns why the conversation ended.
    async fn converse(&self, index: usize) -> Result<Infallible, Fault> {
        let until = self.clock.now().plus(self.connect_timeout);
        let sentinel = &self.sentinels[index];
        let lost = Arc::default();
        let made = sentinel.commands(&self.clock, &lost, self.connect_timeout, until).await?;
        let commands = Commands::new(made, sentinel.greeting.secrets.clone());
        self.ask(index, &commands).await?;
        let mut listening = self.listen(index).await?;
        loop {
            // Also at once after the subscription has begun, so that no switch is missed.
            self.ask(index, &commands).await?;
            let next_at = self.clock.now().plus(ASK_EVERY);
            tokio::select! {
                switch = next(&mut listening) => self.switched(index, &switch?),
                () = lost.notified() => return Err(Fault::Down("it closed the connection".into())),
                () = self.clock.sleep_until(next_at) => {}
            }
        }
    }

    /// Subscribes to the message about a switch. `None` if the user may not: then the question is all there is.
    async fn listen(&self, index: usize) -> Result<Listening, Fault> {
        let until = self.clock.now().plus(self.connect_timeout);
        let sentinel = &self.sentinels[index];
        let (mut sink, stream) =
            sentinel.subscriptions(&self.clock, self.connect_timeout, until).await?;
        let subscribed = self.clock.until(until, sink.subscribe(SWITCH)).await;
        let secrets = &sentinel.greeting.secrets;
        let subscribed = match subscribed {
            Some(answer) => answer.map_err(|error| Fault::from_redis(&error, secrets)),
            None => Err(Fault::NoAnswer(self.connect_timeout)),
        };
        Ok(optional(subscribed)?.map(|()| (sink, stream)))
    }

    /// Asks a Sentinel for the master's address, and for its epoch if the user may.
    async fn ask(&self, index: usize, commands: &Commands) -> Result<(), Fault> {
        // In this order: the epoch is then that of the address, or an earlier one.
        let about = commands.send(self.about("MASTER"));
        let address = commands.send(self.about("GET-MASTER-ADDR-BY-NAME"));
        let until = self.clock.now().plus(self.response_timeout);
        let silence = || Err(Fault::NoAnswer(self.response_timeout));
        let about = self.clock.until(until, about).await.unwrap_or_else(silence);
        let address = self.clock.until(until, address).await.unwrap_or_else(silence);
        let about = optional(about)?;
        let epoch = about.as_ref().and_then(|about| number_in(about, "config-epoch"));
        let at = match address {
            Ok(Reply::Nil) => {
                let problem = format!("it watches no master called {:?}", self.master);
                return Err(Fault::WrongServer(problem.into()));
            }
            Ok(reply) => {
                let secrets = &self.sentinels[index].greeting.secrets;
                let at = announced(&reply).filter(|at| !secrets.are_in(&at.host));
                at.ok_or(Fault::Unexpected("to GET-MASTER-ADDR-BY-NAME".into()))?
            }
            Err(Fault::Refused(cause)) if cause.is_unknown_command() => {
                return Err(Fault::WrongServer("it is not a Sentinel".into()));
            }
            Err(fault) => return Err(fault),
        };
        let run = about.as_ref().and_then(|about| run_of(&at, about));
        let mut state = self.state.lock();
        let failed_before = state.faults[index].take().is_some();
        state.heard_at = self.clock.now();
        let ends_silence = std::mem::take(&mut state.is_silent);
        let heard_at = state.heard_at;
        state.views.told(index, at, epoch, run, heard_at);
        self.conclude(&mut state);
        let disagree = state.views.must_report(heard_at).then(|| self.named(&state, heard_at));
        let used = state.views.chosen().cloned();
        drop(state);
        self.answered.notify_one();
        if failed_before {
            let sentinel = &self.sentinels[index].address;
            events::sentinel_answers(&self.master, sentinel, ends_silence);
        }
        if let (Some(named), Some(used)) = (disagree, used) {
            events::sentinels_disagree(&self.master, &used, &NamedMasters(&named));
        }
        Ok(())
    }

    /// Returns a question about the master.
    fn about(&self, verb: &str) -> redis::Cmd {
        let mut command = redis::cmd("SENTINEL");
        command.arg(verb).arg(&*self.master);
        command
    }

    /// A Sentinel reported a switch: `master from-host from-port to-host to-port`.
    fn switched(&self, index: usize, switch: &str) {
        let words: Vec<&str> = switch.split(' ').collect();
        let [master, from, from_port, to, to_port] = *words else { return };
        let secrets = &self.sentinels[index].greeting.secrets;
        let at = |host, port: &str| {
            Announced::read(host, port.parse().ok()?).filter(|at| !secrets.are_in(&at.host))
        };
        let (from, to) = (at(from, from_port), at(to, to_port));
        if let (true, Some(from), Some(to)) = (master == &*self.master, from, to) {
            let mut state = self.state.lock();
            state.views.switched(index, &from, to, self.clock.now());
            self.conclude(&mut state);
        }
    }

    /// A Sentinel cannot be asked.
    fn failed(&self, index: usize, fault: Fault) {
        events::sentinel_failed(&self.master, &self.sentinels[index].address, &fault);
        let mut state = self.state.lock();
        state.faults[index] = Some(fault);
        self.conclude(&mut state);
        let is_silent = state.views.chosen().is_some()
            && state.faults.iter().all(Option::is_some)
            && self.clock.now().since(state.heard_at) >= SILENCE;
        let begins_silence = is_silent && !std::mem::replace(&mut state.is_silent, is_silent);
        drop(state);
        if begins_silence {
            events::sentinels_silent(&self.master);
        }
    }

    /// Makes known what the answers so far come to.
    fn conclude(&self, state: &mut State) {
        let has_said = |index: usize| state.views.is_known(index) || state.faults[index].is_some();
        let all_have_said = (0..self.sentinels.len()).all(has_said);
        if !state.settled && !all_have_said {
            return;
        }
        let is_none_known = matches!(&*self.known.borrow(), Some(Err(_)));
        // If what they named last could not be used, and they have come back to the one before, that one is used again.
        let before = || state.views.chosen().filter(|_| is_none_known);
        if let Some(at) = state.views.better().or_else(before) {
            let target = self.servers.target(at);
            // Otherwise the next answer of a Sentinel finds it better again, and it is tried again.
            if target.is_ok() {
                state.views.choose();
            }
            state.settled = true;
            self.known.send_replace(Some(target.map(Arc::new)));
        } else if state.views.chosen().is_none() {
            self.known.send_replace(Some(Err(self.summary(state))));
        }
    }

    fn nobody_knows(&self) -> Fault {
        self.summary(&self.state.lock())
    }

    /// Returns why nobody says where the master is.
    fn summary(&self, state: &State) -> Fault {
        let reason = |(sentinel, fault): (&Target, &Option<Fault>)| {
            let silence = Fault::NoAnswer(self.connect_timeout);
            format!("{}: {}", sentinel.address, fault.as_ref().unwrap_or(&silence))
        };
        let reasons: Vec<String> = self.sentinels.iter().zip(&state.faults).map(reason).collect();
        let text = reasons.join("; ");
        let is_lasting = |fault: &Option<Fault>| {
            matches!(fault, Some(Fault::Denied { .. } | Fault::WrongServer(_)))
        };
        match state.faults.iter().all(is_lasting) {
            true => match &state.faults[0] {
                Some(Fault::Denied { what, message }) => {
                    let what = format!("{what} at the Sentinel {}", self.sentinels[0].address);
                    Fault::Denied { what: what.into(), message: message.clone() }
                }
                _ => Fault::WrongServer(text.into()),
            },
            false => Fault::Down(format!("no Sentinel says where the master is: {text}").into()),
        }
    }
}

/// Waits for the next report of a switch.
async fn next(listening: &mut Listening) -> Result<String, Fault> {
    let Some((_, stream)) = listening else { return std::future::pending().await };
    match stream.next().await {
        Some(message) => Ok(String::from_utf8_lossy(message.get_payload_bytes()).into_owned()),
        None => Err(Fault::Down("it closed the connection".into())),
    }
}

/// Reads the answer to GET-MASTER-ADDR-BY-NAME.
fn announced(reply: &Reply) -> Option<Announced> {
    let Some([host, port]) = reply.list() else { return None };
    Announced::read(host.text()?, port.number()?)
}

const SWITCH: &str = "+switch-master";
const ASK_EVERY: Duration = Duration::from_secs(1);
/// At the start, how long the Sentinels have to answer after the first of them has.
const SETTLE: Duration = Duration::from_millis(100);
/// If nobody has answered for this long, nobody would report a failover.
const SILENCE: Duration = Duration::from_secs(3);
/// After a conversation that lasted this long, the pauses start again from the shortest.
const LASTING: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
