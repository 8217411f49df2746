//! What the server and the process do.

use super::case::{Case, Wrong};
use super::state::{Answer, Key, LOCKS, Lease, Request, Set, State, each};

/// The rules of a case, at work on a state.
pub struct Rules<'a> {
    /// The case.
    pub case: &'a Case,
    /// The state that they change.
    pub state: &'a mut State,
}

/// What a renewal came to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Came {
    Held,
    Gone,
    Failed,
}

impl Rules<'_> {
    /// Time passes, on the server as in the process.
    pub fn tick(&mut self) {
        for lock in 0..LOCKS {
            self.state.keys[lock] = match self.state.keys[lock] {
                Key::Ours(1) => {
                    self.state.removed |= 1 << lock;
                    Key::Free
                }
                Key::Ours(left) => Key::Ours(left - 1),
                Key::Others(1) => Key::Free,
                Key::Others(left) => Key::Others(left - 1),
                other => other,
            };
            match self.state.leases[lock] {
                Lease::Held(1) => self.end(lock, Lease::Ended),
                Lease::Held(left) => self.state.leases[lock] = Lease::Held(left - 1),
                _ => {}
            }
        }
        let oldest = self.case.ttl;
        for request in &mut self.state.requests {
            if let Request::Together { age, .. } | Request::Alone(_, age) = request {
                *age = (*age + 1).min(oldest);
            }
        }
        for answer in &mut self.state.answers {
            if let Answer::Together { age, .. } | Answer::Alone(_, _, age) = answer {
                *age = (*age + 1).min(oldest);
            }
        }
    }

    /// A lease is over for the process, which releases it whatever became of it.
    pub fn end(&mut self, lock: usize, how: Lease) {
        self.state.leases[lock] = how;
        self.state.requests.push(Request::Release(lock as u8));
    }

    /// The call for those that were chosen and are held still.
    pub fn send(&mut self) {
        let chosen = std::mem::take(&mut self.state.chosen);
        let is_held = |lock: &usize| matches!(self.state.leases[*lock], Lease::Held(_));
        let held: Set = each(chosen).filter(is_held).map(|lock| 1 << lock).sum();
        let sent = if self.case.is(Wrong::ChosenAreSent) { chosen } else { held };
        let members = if self.case.is(Wrong::AnswersShifted) { chosen } else { sent };
        if sent != 0 {
            self.state.renewing |= sent;
            self.state.requests.push(Request::Together { members, sent, age: 0 });
        }
    }

    /// The server runs a request. One renewal may fail beside others.
    pub fn run(&mut self, request: Request, failing: Option<usize>) {
        match request {
            Request::Release(lock) => {
                let key = &mut self.state.keys[usize::from(lock)];
                if matches!(key, Key::Ours(_)) {
                    *key = Key::Free;
                }
            }
            Request::Alone(lock, age) => {
                // A key of another type is an error by itself, and by that a loss.
                let held = self.renew(usize::from(lock)) == Came::Held;
                self.state.answers.push(Answer::Alone(lock, held, age));
            }
            Request::Together { members, sent, age } => {
                let renew = |lock| match failing {
                    Some(failing) if failing == lock => (lock, Came::Failed),
                    _ => (lock, self.renew(lock)),
                };
                let came: Vec<_> = each(sent).map(renew).collect();
                let those = |which| -> Set {
                    came.iter().filter(|(_, it)| *it == which).map(|(lock, _)| 1 << lock).sum()
                };
                let (held, failed) = (those(Came::Held), those(Came::Failed));
                self.state.answers.push(Answer::Together { members, sent, held, failed, age });
            }
        }
    }

    fn renew(&mut self, lock: usize) -> Came {
        let creates = self.case.is(Wrong::Creates);
        let key = &mut self.state.keys[lock];
        match key {
            Key::Ours(_) => *key = Key::Ours(self.case.ttl),
            Key::Free if creates => *key = Key::Ours(self.case.ttl),
            Key::Overwritten => return Came::Failed,
            Key::Free | Key::Others(_) => return Came::Gone,
        }
        Came::Held
    }

    /// The process hears an answer.
    pub fn hear(&mut self, answer: Answer) {
        match answer {
            Answer::Alone(lock, held, age) => {
                let lock = usize::from(lock);
                self.state.renewing &= !(1 << lock);
                self.came(lock, if held { Came::Held } else { Came::Gone }, age);
            }
            Answer::Refused(members) => {
                for lock in each(members) {
                    self.state.renewing &= !(1 << lock);
                    match self.case.is(Wrong::RefusalIsLoss) {
                        true => self.came(lock, Came::Gone, 0),
                        false => self.came(lock, Came::Failed, 0),
                    }
                }
            }
            Answer::Together { members, sent, held, failed, age } => {
                let all_lost = self.case.is(Wrong::OneLossLosesAll) && held | failed != sent;
                // Each answer stands where its lease stood in the call.
                for (lock, answered) in each(members).zip(each(sent)) {
                    self.state.renewing &= !(1 << lock);
                    let came = match (held & (1 << answered) != 0, failed & (1 << answered) != 0) {
                        _ if all_lost => Came::Gone,
                        (true, _) => Came::Held,
                        (_, true) if self.case.is(Wrong::OneAnswerForAll) => Came::Held,
                        (_, true) if self.case.is(Wrong::FailureIsLoss) => Came::Gone,
                        (_, true) => Came::Failed,
                        _ => Came::Gone,
                    };
                    self.came(lock, came, age);
                    if came == Came::Held && held | failed != sent {
                        self.state.outlived = true;
                    }
                }
            }
        }
    }

    fn came(&mut self, lock: usize, came: Came, age: u8) {
        let lease = self.state.leases[lock];
        let age = if self.case.is(Wrong::CountsFromTheAnswer) { 0 } else { age };
        let until = self.case.ttl - age;
        match (lease, came) {
            (Lease::Held(left), Came::Held) => {
                self.state.leases[lock] = Lease::Held(left.max(until));
            }
            (Lease::Ended, Came::Held) if self.case.is(Wrong::LateAnswerCounts) && until > 0 => {
                self.state.leases[lock] = Lease::Held(until);
            }
            (Lease::Held(_), Came::Gone) => self.end(lock, Lease::Gone),
            (Lease::Held(_), Came::Failed) => {
                self.state.renewing |= 1 << lock;
                self.state.alone = true;
                self.state.requests.push(Request::Alone(lock as u8, 0));
            }
            _ => {}
        }
    }

    /// The connection breaks. What ran is not heard, what did not run is lost, and each lease is as it was.
    pub fn breaks(&mut self) {
        let renewing = std::mem::take(&mut self.state.renewing);
        self.state.answers.clear();
        self.state.requests.retain(|request| matches!(request, Request::Release(_)));
        if self.case.is(Wrong::SilenceRenews) {
            each(renewing).for_each(|lock| self.came(lock, Came::Held, 0));
        }
    }
}
