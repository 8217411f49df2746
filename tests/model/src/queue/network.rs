//! What happens to connections and processes.

use arrayvec::ArrayVec;

use super::server::Rules;
use super::state::{Hub, LastRelease, Life, Phase, Process};
use super::wire::{Ask, HubRequest, Reply, Request};

impl Rules<'_> {
    /// The command connection breaks and is made again. What has not run is killed with it, or cannot be killed.
    pub fn reconnect(&mut self, process: usize, killed: bool) {
        let own = &mut self.state.processes[process];
        let asks: ArrayVec<Ask, 16> = own.asks().collect();
        let sent = std::mem::take(&mut own.sent);
        own.replies.clear();
        if let LastRelease::Pending(_) = own.last_release {
            (own.last_release, own.others_listen) = (LastRelease::Over, false);
        }
        own.sent =
            sent.iter().filter(|sent| matches!(sent, Request::Release(..))).copied().collect();
        if !killed {
            own.stray.extend(sent);
        }
        self.forget_sample(process);
        self.fail(process, &asks);
    }

    fn forget_sample(&mut self, process: usize) {
        let own = &mut self.state.processes[process];
        (own.sample, own.sample_is_new) = (None, false);
    }

    /// The subscriptions' connection breaks. Messages that have arrived may still be heard.
    pub fn reset(&mut self, process: usize, noticed: bool) {
        let own = &mut self.state.processes[process];
        if !noticed {
            own.ghost_mailbox |= own.mailbox;
            own.ghost_channel |= own.channel;
        }
        (own.mailbox, own.channel) = (false, false);
        own.hub_sent.clear();
        own.hub = Hub::Broken;
    }

    /// The server closes what it had of that connection.
    pub fn server_notices(&mut self, process: usize) {
        let own = &mut self.state.processes[process];
        (own.ghost_mailbox, own.ghost_channel) = (false, false);
    }

    /// The process makes the connection again and subscribes.
    pub fn process_notices(&mut self, process: usize) {
        let own = &mut self.state.processes[process];
        own.hub = Hub::Subscribing;
        own.epoch = 0;
        own.inbox.clear();
        own.hub_sent.push(HubRequest::Mailbox);
        if own.listening {
            own.hub_sent.push(HubRequest::Channel);
        }
        age_samples(own);
        self.forget_sample(process);
    }

    /// Lock and queue move to another server, where no mailbox of a process is subscribed. What was sent is redirected.
    pub fn move_away(&mut self) {
        for own in &mut self.state.processes {
            (own.mailbox, own.channel) = (false, false);
            (own.ghost_mailbox, own.ghost_channel) = (false, false);
            own.hub_sent.clear();
            own.follows = own.is_live();
        }
    }

    /// The process learns that the queue is on another server: its requests begin anew there.
    pub fn follow(&mut self, process: usize) {
        let own = &mut self.state.processes[process];
        (own.follows, own.hub, own.epoch, own.listening) = (false, Hub::Off, 0, false);
        own.inbox.clear();
        self.forget_sample(process);
        self.begin_anew(process);
    }

    /// The process ends or stops. What it has sent may still run, in part or not at all.
    pub fn end(&mut self, process: usize, life: Life) {
        let own = &mut self.state.processes[process];
        let Process { mailbox, channel, ghost_mailbox, ghost_channel, .. } = *own;
        let mut stray = std::mem::take(&mut own.stray);
        stray.extend(own.sent.iter().copied());
        *own = Process { life, stray, ..Process::default() };
        if life == Life::Stopped {
            (own.mailbox, own.channel) = (mailbox, channel);
            (own.ghost_mailbox, own.ghost_channel) = (ghost_mailbox, ghost_channel);
        }
        for waiter in self.waiters_of(process) {
            let own = &mut self.state.waiters[waiter];
            *own = own.idle();
        }
    }

    /// The server restarts without its data. No connection outlives that; a process notices it later.
    pub fn restart(&mut self) {
        self.state.lock = None;
        self.state.queue.clear();
        for process in 0..self.state.processes.len() {
            let own = &mut self.state.processes[process];
            own.stray.clear();
            own.cut = own.is_live();
            let subscribes = own.hub != Hub::Off;
            if subscribes {
                self.reset(process, true);
            }
        }
        self.step(self.case.restart_step);
    }

    /// The process connects to the server that restarted: nothing earlier can run, and its grants do not count for a
    /// while.
    pub fn meet_again(&mut self, process: usize) {
        let own = &mut self.state.processes[process];
        own.cut = false;
        own.quarantine = self.case.quarantine;
        self.reconnect(process, true);
    }

    /// A renewal is sent.
    pub fn renew(&mut self, waiter: usize) {
        let id = self.state.id(waiter);
        self.state.waiters[waiter].phase = Phase::Renewing;
        self.state.processes[self.case.home(waiter)].sent.push(Request::Renew(id, 0));
    }

    /// The waiters of a process.
    pub fn waiters_of(&self, process: usize) -> impl Iterator<Item = usize> + use<> {
        let homes = self.case.homes;
        (0..homes.len()).filter(move |&waiter| usize::from(homes[waiter]) == process)
    }
}

/// Asks that were sent before a reset give no samples for what is heard after it.
fn age_samples(process: &mut Process) {
    for request in &mut process.sent {
        if let Request::Ask(ask) = request {
            ask.epoch = 0;
        }
    }
    for reply in &mut process.replies {
        if let Reply::Granted { ask, .. } | Reply::Refused { ask, .. } = reply {
            ask.epoch = 0;
        }
    }
}
