"""Where should a limited number of verifier calls be spent?"""
