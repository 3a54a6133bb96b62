"""Texts that look like functions, for tests that must hold for any text."""
from __future__ import annotations

from hypothesis import strategies as st

_WORDS = """doc . title list [ ] ( ) { } #{ : , ; = += - * / % ** << == < && || ! in .. ..= ?? ?. ?[ | => let const if
else switch while until loop do for continue break return throw try catch fn true x y f 0 2 -1 3.5 1e300
9223372036854775807 "a" "" 'c' `t${ } ` _ this context .len() .push( .map( |x| .to_upper() .replace( .split(
.trim() .pop() .keys() .reduce( .pad( .insert( .round() .to_int() range( type_of( Fn( call( curry( exit()
doc.list doc.o doc.title doc.n doc = doc[ x = let""".split()
texts_of_words = st.lists(st.sampled_from(_WORDS), max_size=25).map(" ".join)
