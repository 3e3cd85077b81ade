from typing import Any
def demo_config(f:Any)->str: return ""
def family_folder()->Any: return 0
def train_family(a:Any,b:Any)->Any: return 0
