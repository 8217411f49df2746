//! What a node does with a request, and what the scripts do there. Broken rules stand beside the right ones, each named by a
//! [`Wrong`].

use super::case::{Case, End, Wrong};
use super::state::{Form, Key, Node, Reply, Request, Slot, State};

/// The rules, applied to one state.
pub struct Rules<'a> {
    /// The case.
    pub case: &'a Case,
    /// The state that they change.
    pub state: &'a mut State,
}

/// A call of a script that the node refuses.
struct Refused;

impl Rules<'_> {
    /// The node runs the request, or says why not.
    pub fn run(&mut self) {
        let declared = self.declared();
        let reply = match self.refusal(&declared) {
            Some(refusal) => refusal,
            None => {
                let ended = match self.state.end {
                    End::Lock => self.lock_release(),
                    End::LockByForce => self.force_unlock(),
                    End::Reader | End::Writer => self.rw_release(),
                    End::ReadersByForce => self.rw_force_unlock(),
                    End::Permit => self.permit_release(),
                };
                match ended {
                    Ok(true) => Reply::Ended,
                    Ok(false) => Reply::Nothing,
                    Err(Refused) => Reply::Failed,
                }
            }
        };
        self.state.request = Request::Answered(reply);
    }

    /// The caller hears the answer. What did not run, or failed, is sent again.
    pub fn hear(&mut self) {
        let Request::Answered(reply) = self.state.request else { unreachable!("it is answered") };
        let form = self.state.form;
        let told = match reply {
            Reply::Ended => Some(true),
            Reply::Nothing => Some(false),
            Reply::Failed | Reply::TryAgain if self.case.is(Wrong::RefusalIsDone) => Some(true),
            _ => None,
        };
        if told.is_some() {
            (self.state.told, self.state.request) = (told, Request::Over);
            return;
        }
        let one_key = reply == Reply::TryAgain && self.state.end.works_with_one_key();
        self.state.form = match reply {
            Reply::Moved => Form { to: Node::Second, asking: false, one_key: false },
            Reply::Ask => Form { to: Node::Second, asking: true, one_key: false },
            _ => Form { one_key, ..form },
        };
        self.state.request = Request::Sent;
    }

    /// The keys that the request names.
    fn declared(&self) -> Vec<Key> {
        match self.state.form.one_key {
            true => vec![Key::Name],
            false => vec![Key::Name, Key::Second, Key::Queue],
        }
    }

    fn is_here(&self, key: Key) -> bool {
        self.state.at[key as usize] == Some(self.state.form.to)
    }

    /// Why the node does not run what names these keys, if it does not.
    fn refusal(&self, keys: &[Key]) -> Option<Reply> {
        let Form { to, asking, .. } = self.state.form;
        let missing = keys.iter().filter(|key| !self.is_here(**key)).count();
        match (self.state.slot, to) {
            (Slot::On(node), _) => (node != to).then_some(Reply::Moved),
            (Slot::Open, Node::First) if missing == 0 => None,
            (Slot::Open, Node::First) if missing == keys.len() => Some(Reply::Ask),
            (Slot::Open, Node::First) => Some(Reply::TryAgain),
            (Slot::Open, Node::Second) if !asking => Some(Reply::Moved),
            (Slot::Open, Node::Second) => {
                (keys.len() > 1 && missing > 0).then_some(Reply::TryAgain)
            }
        }
    }

    /// A call of the script that names these keys.
    fn call(&self, keys: &[Key]) -> Result<(), Refused> {
        if self.refusal(keys).is_some() { Err(Refused) } else { Ok(()) }
    }

    fn write(&mut self, key: Key) -> Result<(), Refused> {
        self.call(&[key])?;
        self.state.at[key as usize] = Some(self.state.form.to);
        Ok(())
    }

    fn delete(&mut self, key: Key) -> Result<(), Refused> {
        self.call(&[key])?;
        if self.is_here(key) {
            self.state.at[key as usize] = None;
        }
        Ok(())
    }

    /// Lets in the one who waits, if anybody does.
    fn pump(&mut self) -> Result<(), Refused> {
        self.call(&[Key::Queue])?;
        if !self.is_here(Key::Queue) {
            return Ok(());
        }
        self.delete(Key::Queue)?;
        self.write(Key::Second)?;
        self.write(Key::Name)?;
        self.state.let_in = true;
        // Of a semaphore, there is room for it.
        self.state.passed_over |= self.state.end.is_shared() && self.state.other;
        Ok(())
    }

    fn lock_release(&mut self) -> Result<bool, Refused> {
        self.call(&[Key::Name])?;
        if !(self.is_here(Key::Name) && self.state.lease) {
            return Ok(false);
        }
        self.state.lease = false;
        self.delete(Key::Name)?;
        if self.state.form.one_key {
            return Ok(true);
        }
        let asked = self.call(&[Key::Name, Key::Name, Key::Queue]);
        if asked.is_ok() || self.case.is(Wrong::ServesUnasked) {
            self.pump()?;
        }
        Ok(true)
    }

    fn force_unlock(&mut self) -> Result<bool, Refused> {
        self.call(&[Key::Name])?;
        if !self.is_here(Key::Name) {
            return Ok(false);
        }
        self.delete(Key::Name)?;
        self.state.lease = false;
        let asked = self.call(&[Key::Name]);
        let serves = asked.is_ok() || self.case.is(Wrong::ServesUnasked);
        if serves && !self.state.form.one_key {
            self.pump()?;
        }
        Ok(true)
    }

    /// Whether the other reader reads.
    fn live_reader(&mut self) -> Result<bool, Refused> {
        self.call(&[Key::Name])?;
        if !(self.is_here(Key::Name) && self.state.other) {
            return Ok(false);
        }
        self.call(&[Key::OtherEnd])?;
        if self.is_here(Key::OtherEnd) {
            return Ok(true);
        }
        if !self.case.is(Wrong::EndElsewhereIsOver) {
            self.call(&[Key::Name, Key::OtherEnd])?;
        }
        self.state.other = false;
        self.state.passed_over = true;
        Ok(false)
    }

    fn rw_release(&mut self) -> Result<bool, Refused> {
        if self.state.end == End::Reader {
            let _ = self.delete(Key::OwnEnd);
        }
        self.call(&[Key::Name])?;
        if !(self.is_here(Key::Name) && self.state.lease) {
            return Ok(false);
        }
        self.state.lease = false;
        let asked_queue = !self.state.form.one_key;
        if asked_queue {
            self.call(&[Key::Queue])?;
        }
        let other = match self.live_reader() {
            Err(Refused) if self.case.is(Wrong::LooksAndFails) => return Err(Refused),
            other => other,
        };
        if !matches!(other, Ok(false)) {
            return Ok(true);
        }
        self.delete(Key::Name)?;
        let asked = self.call(&[Key::Name]);
        if asked_queue && (asked.is_ok() || self.case.is(Wrong::ServesUnasked)) {
            self.pump()?;
        }
        Ok(true)
    }

    fn rw_force_unlock(&mut self) -> Result<bool, Refused> {
        // Who reads is looked for before anything ends.
        self.call(&[Key::Name])?;
        if !self.is_here(Key::Name) {
            return Ok(false);
        }
        if self.state.other {
            self.live_reader()?;
        }
        let _ = self.delete(Key::OwnEnd);
        let _ = self.delete(Key::OtherEnd);
        self.delete(Key::Name)?;
        (self.state.lease, self.state.other) = (false, false);
        let asked = self.call(&[Key::Name]);
        if asked.is_ok() || self.case.is(Wrong::ServesUnasked) {
            self.pump()?;
        }
        Ok(true)
    }

    fn permit_release(&mut self) -> Result<bool, Refused> {
        self.call(&[Key::Second])?;
        if !(self.is_here(Key::Second) && self.state.lease) {
            return Ok(false);
        }
        self.state.lease = false;
        if !self.state.other {
            self.delete(Key::Second)?;
        }
        self.write(Key::Name)?;
        let served = self.serve();
        if self.case.is(Wrong::ServesUnasked) {
            served?;
        }
        Ok(true)
    }

    /// Takes back what has ended, and gives permits to the one who waits.
    fn serve(&mut self) -> Result<(), Refused> {
        self.call(&[Key::Second])?;
        self.pump()
    }
}
