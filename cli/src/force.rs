//! `force`: frees a lock that somebody else holds.

use std::slice;

use leasehold::{Holder, LockStatus};
use serde_json::json;

use crate::args::{Force, Servers};
use crate::exit::{self, Failure};
use crate::look;
use crate::text::{self, SCHEMA};

pub async fn force(force: &Force, servers: &Servers) -> Result<u8, Failure> {
    let client = servers.connect(None).await?;
    let lock = client.mutex(&force.lock);
    let rw_lock = client.rw_lock(&force.lock);
    let (status, is_rw) = look::status(&client, &force.lock).await?;
    let holders = match &status.readers[..] {
        [] => status.holder.as_slice(),
        readers => readers,
    };
    // Of several readers any may be named.
    let named = force.holder.as_ref().and_then(|given| holders.iter().find(|it| names(given, it)));
    let freed = match (&force.holder, named) {
        _ if holders.is_empty() => Err(is_free(&status)),
        (Some(given), None) => Err(is_held(&status, holders, given)),
        (Some(_), Some(holder)) => match is_rw {
            false => lock.force_unlock_if(holder).await,
            true => rw_lock.force_unlock_if(holder).await,
        }
        .map_err(Failure::from),
        (None, _) => match is_rw {
            false => lock.force_unlock().await,
            true => rw_lock.force_unlock().await,
        }
        .map_err(Failure::from),
    };
    client.shutdown().await;
    if !freed? {
        return Err(match named {
            None => is_free(&status),
            Some(_) => Failure::new(
                exit::BUSY,
                format!(
                    "lock {:?} may have changed hands meanwhile, not freed: if that holder is still shown, try again after 3 s (13 s over several masters)",
                    status.name
                ),
            ),
        });
    }
    let ended = named.map_or(holders, slice::from_ref);
    let others = holders.len() - ended.len();
    // Readers share the token, and the others go on with it.
    let stale_token = status.last_token.filter(|_| others == 0);
    if servers.json {
        show!(
            "{}",
            json!({
                "schema": SCHEMA,
                "name": status.name,
                "holder": ended.first(),
                "holders": ended,
                "stale_token": stale_token,
            })
        );
    } else if !servers.quiet {
        let what = match others {
            0 => format!("freed {:?}, which {} held", status.name, listed(ended)),
            _ => format!(
                "ended {}'s part of {:?}, which {} still {}",
                listed(ended),
                status.name,
                text::other_readers(others),
                if others == 1 { "holds" } else { "hold" }
            ),
        };
        let token = match stale_token {
            Some(token) => format!("; its token {token} is stale: let the resource refuse it"),
            None => String::new(),
        };
        show!("{what}: {}{token}", when_told(ended));
    }
    Ok(0)
}

fn is_free(status: &LockStatus) -> Failure {
    Failure::new(1, format!("lock {:?} is free", status.name))
}

/// Nobody of those who hold it was named, or not in full.
fn is_held(status: &LockStatus, holders: &[Holder], given: &str) -> Failure {
    let begins_so = |holder: &&Holder| !given.is_empty() && holder.as_str().starts_with(given);
    let problem = match holders.iter().find(begins_so) {
        Some(holder) => format!("is held by {holder}: name it in full, --holder {holder}"),
        None => {
            format!("is held by {} by now, not freed", text::holders(status).unwrap_or_default())
        }
    };
    Failure::new(exit::BUSY, format!("lock {:?} {problem}", status.name))
}

/// Returns true if `given` is at least as much of the holder as `inspect` shows.
fn names(given: &str, holder: &Holder) -> bool {
    let shown = holder.to_string();
    given == shown || (given.len() > shown.len() && holder.as_str().starts_with(given))
}

fn listed(holders: &[Holder]) -> String {
    let shown: Vec<_> = holders.iter().map(Holder::to_string).collect();
    match shown.split_last() {
        None | Some((_, [])) => shown.concat(),
        Some((last, before)) => format!("{} and {last}", before.join(", ")),
    }
}

/// Says when those learn of it whose hold was ended.
fn when_told(ended: &[Holder]) -> &'static str {
    let of_redisson = ended.iter().filter(|holder| holder.client().is_none()).count();
    match (ended.len(), of_redisson) {
        (1, 0) => "it is told at its next renewal, and may be at work until then",
        (1, _) => "it learns of that only when it calls unlock(), and may be at work until then",
        (_, 0) => "each is told at its next renewal, and may be at work until then",
        (all, some) if all == some => {
            "each learns of that only when it calls unlock(), and may be at work until then"
        }
        _ => {
            "each is told at its next renewal, one of Redisson only when it calls unlock(), and may be at work until then"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_is_named_by_what_is_shown_or_by_more_of_it() {
        let holder = Holder::named("billing-7:01234567-89ab-cdef-0123-456789abcdef");
        for right in ["billing-7:01234567", "billing-7:01234567-89ab", holder.as_str()] {
            assert!(names(right, &holder), "{right}");
        }
        for wrong in
            ["", "billing-7", "billing-7:0123456", "billing-7:01234568", "billing-7:01234567-89ac"]
        {
            assert!(!names(wrong, &holder), "{wrong}");
        }
    }

    #[test]
    fn it_is_said_who_learns_of_it_and_when() {
        let ours = Holder::named("billing-7:01234567-89ab-cdef-0123-456789abcdef");
        let other = Holder::named("billing-8:11234567-89ab-cdef-0123-456789abcdef");
        let java = Holder::named("6b0f4c1e-0000-4000-8000-000000000000:57");
        for (ended, shown, told) in [
            (vec![ours.clone()], "billing-7:01234567", "it is told at its next renewal, and"),
            (
                vec![java.clone()],
                "6b0f4c1e-0000-4000-8000-000000000000:57",
                "it learns of that only when it calls unlock(), and",
            ),
            (
                vec![ours.clone(), other.clone()],
                "billing-7:01234567 and billing-8:11234567",
                "each is told at its next renewal, and",
            ),
            (
                vec![ours, other, java],
                "billing-7:01234567, billing-8:11234567 and 6b0f4c1e-0000-4000-8000-000000000000:57",
                "each is told at its next renewal, one of Redisson only when it calls unlock(), and",
            ),
        ] {
            assert_eq!(listed(&ended), shown);
            assert!(when_told(&ended).starts_with(told), "{}", when_told(&ended));
        }
    }
}
