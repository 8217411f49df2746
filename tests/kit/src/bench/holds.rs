//! What lies between the holds of a lock.

/// How long after each release it was taken again, in the unit of `holds`. Each hold is from when until when, and `at_once`
/// of them may overlap.
pub fn hand_overs(holds: &[(f64, f64)], at_once: usize) -> Result<Vec<f64>, &'static str> {
    let (mut begins, mut ends): (Vec<f64>, Vec<f64>) = holds.iter().copied().unzip();
    begins.sort_by(f64::total_cmp);
    ends.sort_by(f64::total_cmp);
    // The first holds wait for nobody; each later one for the end of one more.
    let hand_overs: Vec<f64> =
        begins.iter().skip(at_once).zip(&ends).map(|(begin, end)| begin - end).collect();
    if hand_overs.iter().any(|hand_over| *hand_over < 0.0) {
        return Err("more clients held it at the same time than may");
    }
    Ok(hand_overs)
}
