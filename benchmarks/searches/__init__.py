"""How many checks a search needs: counted on random culprits, beside the information bound and published algorithms."""
