//! What a client does that follows Redisson's `RLock`: it takes the lock whenever it is free, else subscribes to the
//! lock's channel, asks again, and waits for a message or the end of the lease that it was told of.

use super::server::Rules;
use super::state::{Holder, JavaPhase, Lock};

impl Rules<'_> {
    /// A request or a subscription runs, and the answer is heard.
    pub fn java_run(&mut self, java: usize) {
        let own = &mut self.state.javas[java];
        match own.phase {
            JavaPhase::Asking => self.java_ask(java, JavaPhase::Subscribing),
            JavaPhase::AskingAgain => self.java_ask(java, JavaPhase::Waiting),
            JavaPhase::Subscribing => {
                own.subscribed = true;
                own.phase = JavaPhase::AskingAgain;
            }
            JavaPhase::Releasing => {
                own.phase = JavaPhase::Idle;
                if self.java_has(java) {
                    self.state.lock = None;
                    self.publish();
                }
            }
            _ => unreachable!("nothing of it is on its way"),
        }
    }

    fn java_ask(&mut self, java: usize, refused: JavaPhase) {
        let holder = Holder::Java(java as u8);
        let lock = *self.state.lock.get_or_insert(Lock { holder, left: self.case.ttl });
        let own = &mut self.state.javas[java];
        if lock.holder == holder {
            own.phase = JavaPhase::Held;
            (own.woken, own.watches) = (false, None);
            self.note_java_turn();
        } else {
            own.phase = refused;
            own.watches = Some(lock.holder);
        }
    }

    /// It asks again.
    pub fn java_wake(&mut self, java: usize) {
        let own = &mut self.state.javas[java];
        own.phase = JavaPhase::AskingAgain;
        (own.woken, own.watches) = (false, None);
    }

    /// It ends; its subscription with it.
    pub fn java_crash(&mut self, java: usize) {
        let own = &mut self.state.javas[java];
        *own = super::state::Java { phase: JavaPhase::Ended, ..Default::default() };
    }

    /// Whether this client holds the lock on the server.
    pub fn java_has(&self, java: usize) -> bool {
        self.state.lock.is_some_and(|lock| lock.holder == Holder::Java(java as u8))
    }
}
