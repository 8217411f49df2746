//! `force`: frees a lock that somebody else holds.

use leasehold::Holder;
use serde_json::json;

use crate::args::{Force, Servers};
use crate::exit::{self, Failure};
use crate::look;
use crate::text::SCHEMA;

pub async fn force(force: &Force, servers: &Servers) -> Result<u8, Failure> {
    let client = servers.connect(None).await?;
    let lock = client.mutex(&force.lock);
    let rw_lock = client.rw_lock(&force.lock);
    let (status, is_rw) = look::status(&client, &force.lock).await?;
    // Of several readers any may be named.
    let is_meant =
        |holder: &&Holder| force.holder.as_ref().is_none_or(|given| names(given, holder));
    let named = status.holder.iter().chain(&status.readers).find(is_meant);
    let freed = match (named, &status.holder) {
        (None, None) => Err(Failure::new(1, format!("lock {:?} is free", status.name))),
        (None, Some(holder)) => Err(Failure::new(
            exit::BUSY,
            format!("lock {:?} is held by {holder} by now, not freed", status.name),
        )),
        (Some(holder), _) => match (force.any, is_rw) {
            (true, false) => lock.force_unlock().await,
            (true, true) => rw_lock.force_unlock().await,
            (false, false) => lock.force_unlock_if(holder).await,
            (false, true) => rw_lock.force_unlock_if(holder).await,
        }
        .map(|freed| freed.then(|| holder.clone()))
        .map_err(Failure::from),
    };
    client.shutdown().await;
    let Some(holder) = freed? else {
        return Err(Failure::new(
            exit::BUSY,
            format!(
                "lock {:?} may have changed hands meanwhile, not freed: if that holder is still shown, try again after 3 s (13 s over several masters)",
                status.name
            ),
        ));
    };
    if servers.json {
        show!(
            "{}",
            json!({
                "schema": SCHEMA,
                "name": status.name,
                "holder": holder,
                "stale_token": status.last_token,
            })
        );
    } else if !servers.quiet {
        let token = match status.last_token {
            Some(token) => format!("; its token {token} is stale: let the resource refuse it"),
            None => String::new(),
        };
        show!(
            "freed {:?}, which {holder} held: it is told at its next renewal, and may be at work until then{token}",
            status.name
        );
    }
    Ok(0)
}

/// Returns true if `given` is at least as much of the holder as `inspect` shows.
fn names(given: &str, holder: &Holder) -> bool {
    let shown = holder.to_string();
    given == shown || (given.len() > shown.len() && holder.as_str().starts_with(given))
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
}
