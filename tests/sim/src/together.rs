//! A call that renews several leases, as the renewals that it stands for.

use std::collections::BTreeMap;

use leasehold_test::emulator::{Ran, resp::Value, sha1};

/// The scripts that renew several leases, by hash: the hash of the one that renews one.
pub struct Together {
    singles: BTreeMap<String, String>,
}

/// One renewal of several: its hash, keys and arguments.
pub type Part<'a> = (&'a str, &'a [Vec<u8>], &'a [Vec<u8>]);

impl Default for Together {
    fn default() -> Self {
        let hash = |name: &str| {
            let mut scripts = leasehold::seam::scripts();
            let (_, body) = scripts.find(|(known, _)| *known == name).expect("a script");
            sha1(body.as_bytes())
        };
        let pairs = NAMES.map(|(several, one)| (hash(several), hash(one)));
        Self { singles: pairs.into() }
    }
}

impl Together {
    /// Returns what a call stands for: itself, unless it renews several leases.
    pub fn parts<'a>(
        &'a self,
        hash: &'a str,
        keys: &'a [Vec<u8>],
        args: &'a [Vec<u8>],
    ) -> Vec<Part<'a>> {
        let Some(single) = self.singles.get(hash) else { return vec![(hash, keys, args)] };
        let number = |word: &[u8]| -> usize {
            std::str::from_utf8(word).expect("a number").parse().expect("a number")
        };
        let [per_key, per_arg, args @ ..] = args else { panic!("renewals without their sizes") };
        let leases = keys.chunks(number(per_key)).zip(args.chunks(number(per_arg)));
        leases.map(|(keys, args)| (&**single, keys, args)).collect()
    }

    /// Returns what ran, as if each renewal had been sent by itself.
    pub fn each(&self, ran: &Ran) -> Vec<Ran> {
        let parts = self.parts(&ran.hash, &ran.keys, &ran.args);
        let replies: Vec<Value> = match &ran.reply {
            Value::Array(items) if parts[0].0 != ran.hash => {
                assert_eq!(items.len(), parts.len() + 1, "an answer for each");
                items[1..].iter().map(single).collect()
            }
            reply => vec![reply.clone(); parts.len()],
        };
        let each = |((hash, keys, args), reply): (Part<'_>, Value)| Ran {
            hash: hash.to_owned(),
            keys: keys.to_vec(),
            args: args.to_vec(),
            reply,
            published: ran.published.clone(),
        };
        parts.into_iter().zip(replies).map(each).collect()
    }
}

/// What the renewal would have answered by itself.
fn single(reply: &Value) -> Value {
    match reply {
        Value::Int(-1) => Value::error("ERR the renewal failed beside others"),
        reply => reply.clone(),
    }
}

/// Those for several, and those for one.
const NAMES: [(&str, &str); 4] = [
    ("locks_renew", "lock_renew"),
    ("reads_renew", "read_renew"),
    ("permits_renew", "permit_renew"),
    ("items_renew", "item_renew"),
];
